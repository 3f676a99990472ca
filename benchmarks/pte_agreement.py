"""A .pte file in ExecuTorch's runtime beside our program with the same weights: logits, perplexity
on the built-in text, and a greedy answer of 32 tokens.

    python benchmarks/pte_agreement.py smollm2-135m --recipe fp32
    python benchmarks/pte_agreement.py smollm2-135m --recipe 8da4w

It wants an environment with satchel[executorch].
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from agreement import QUESTION, tell, tell_answers

from satchel.backends import find_target
from satchel.calibration.built_in import TEXT
from satchel.exporter import ExportOptions, prepare_export
from satchel.llm.tokenizer import Tokenizer
from satchel.runtime.program import Program

BLOCK, BLOCKS = 128, 3


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
        portable, made = job.both_forms(Path(name))
        program = Program(portable, target="cpu")
        method = Runtime.get().load_program(made[".pte"]).load_method("forward")
        prefill = program.instance().method("prefill_forward")
        kv = program.instance().method("kv_forward")

        def theirs(tokens: list[int], start: int) -> Any:
            given = [torch.tensor([tokens]), torch.tensor([start])]
            return method.execute(given)[0].numpy()[0]

        def ours(tokens: list[int], start: int) -> Any:
            rows = np.arange(len(tokens), dtype=np.int32)
            return prefill.run(np.array(tokens, np.int32), [start], rows)[0]

        ids = tokenizer.encode(TEXT, add_bos=False)[: BLOCK * BLOCKS + 1]
        starts = range(0, len(ids) - 1, BLOCK)
        blocks = [ids[:-1][at : at + BLOCK] for at in starts]
        logits = [
            np.concatenate([read(block, at) for at, block in zip(starts, blocks, strict=True)])
            for read in (theirs, ours)
        ]
        print(f"{arguments.source} {arguments.recipe}, {len(ids) - 1} tokens of the built-in text")
        tell("executorch", *logits, ids[1:])
        tell_answers(
            lambda tokens, start: theirs(tokens, start)[-1],
            lambda tokens, start: [kv.run([x], [start + i])[0] for i, x in enumerate(tokens)][-1],
            tokenizer.encode(QUESTION, add_bos=False),
        )


if __name__ == "__main__":
    main()
