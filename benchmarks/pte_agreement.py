"""A .pte file in ExecuTorch's runtime beside our program with the same weights: logits, perplexity
on the built-in text, and a greedy answer of 32 tokens.

    python benchmarks/pte_agreement.py smollm2-135m --recipe fp32
    python benchmarks/pte_agreement.py smollm2-135m --recipe 8da4w

It wants an environment with satchel[executorch].
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from satchel.backends import find_target
from satchel.calibration.built_in import TEXT
from satchel.exporter import ExportOptions, prepare_export
from satchel.llm.tokenizer import Tokenizer
from satchel.runtime.program import Program

BLOCK, BLOCKS, ANSWER = 128, 3, 32
QUESTION = "What is the capital of France?"


def surprise(logits: Any, tokens: Any) -> Any:
    wide = logits.astype(np.float64)
    wide = wide - wide.max(axis=-1, keepdims=True)
    return np.log(np.exp(wide).sum(axis=-1)) - wide[np.arange(len(tokens)), tokens]


def greedy(step: Callable[[list[int], int], Any], prompt: list[int]) -> list[int]:
    text = list(prompt)
    logits = step(text, 0)
    for _ in range(ANSWER):
        text.append(int(logits.argmax()))
        logits = step(text[-1:], len(text) - 1)
    return text[len(prompt) :]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source")
    parser.add_argument("--recipe", default="8da4w", choices=("fp32", "8a8w", "8da4w"))
    arguments = parser.parse_args()
    import executorch.extension.llm.custom_ops.custom_ops
    import executorch.kernels.quantized  # noqa: F401
    import torch
    from executorch.runtime import Runtime

    target = find_target("executorch", all_logits=True)
    options = ExportOptions(
        target=target, recipe=arguments.recipe, context=512, prefill_ar_len=BLOCK
    )
    job = prepare_export(arguments.source, options)
    tokenizer = Tokenizer(job.tokenizer)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        job._pack(folder / "portable.satchel", False, 0)
        program = Program(folder / "portable.satchel", target="cpu")
        (compilation,) = job.compilations.values()
        path = compilation.compile(program, folder, lambda *_: None).files[".pte"]
        method = Runtime.get().load_program(path).load_method("forward")
        prefill = program.instance().method("prefill_forward")
        kv = program.instance().method("kv_forward")

        def theirs(tokens: list[int], start: int) -> Any:
            given = [torch.tensor([tokens]), torch.tensor([start])]
            return method.execute(given)[0].numpy()[0]

        ids = tokenizer.encode(TEXT, add_bos=False)[: BLOCK * BLOCKS + 1]
        costs, apart = [], 0.0
        for at in range(0, len(ids) - 1, BLOCK):
            block, wanted = ids[at : at + BLOCK], ids[at + 1 : at + BLOCK + 1]
            block = block[: len(wanted)]
            rows = np.arange(len(block), dtype=np.int32)
            ours = prefill.run(np.array(block, np.int32), [at], rows)[0]
            found = theirs(block, at)
            apart = max(apart, float(np.abs(found - ours).max()))
            costs.append((surprise(found, wanted), surprise(ours, wanted)))
        both = [float(np.exp(np.concatenate(part).mean())) for part in zip(*costs, strict=True)]
        print(f"{arguments.source} {arguments.recipe}, {len(ids) - 1} tokens of the built-in text")
        print(f"perplexity: executorch {both[0]:.3f}, satchel {both[1]:.3f}")
        print(f"logits differ by at most {apart:.6f}")
        prompt = tokenizer.encode(QUESTION, add_bos=False)
        answers = [
            greedy(lambda tokens, start: theirs(tokens, start)[-1], prompt),
            greedy(lambda t, s: [kv.run([x], [s + i])[0] for i, x in enumerate(t)][-1], prompt),
        ]
        same = next((i for i in range(ANSWER) if answers[0][i] != answers[1][i]), ANSWER)
        print(f"greedy: the first {same} of {ANSWER} tokens are the same")


if __name__ == "__main__":
    main()
