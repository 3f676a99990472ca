"""A Core ML package in the interpreter beside our program with the same weights: logits, perplexity
on the built-in text, and a greedy answer of 32 tokens.

    python benchmarks/coreml_agreement.py smollm2-135m --recipe fp16
    python benchmarks/coreml_agreement.py smollm2-135m --recipe 8da4w

It wants an environment with satchel[coreml]. The package's activations are floats; our kernels
round those of 8da4w to 8 bits, so that only fp16 can be expected to give the same text.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from pte_agreement import ANSWER, QUESTION, greedy, surprise

from satchel.backends import find_target
from satchel.backends.coreml.running import PackageProgram, interpreted
from satchel.calibration.built_in import TEXT
from satchel.exporter import ExportOptions, prepare_export
from satchel.llm.tokenizer import Tokenizer
from satchel.runtime.program import Instance, Program


class Reader:
    """Reads tokens one by one and gives their logits."""

    def __init__(self, instance: Instance) -> None:
        self.method = instance.method("kv_forward")

    def rows(self, tokens: list[int], start: int) -> Any:
        return np.stack([self.method.run([x], [start + i])[0][-1] for i, x in enumerate(tokens)])

    def last(self, tokens: list[int], start: int) -> Any:
        return self.rows(tokens, start)[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("source")
    parser.add_argument("--recipe", default="fp16", choices=("fp16", "8a8w", "8da4w"))
    parser.add_argument("--tokens", type=int, default=384, help="of the text")
    arguments = parser.parse_args()
    options = ExportOptions(target=find_target("coreml"), recipe=arguments.recipe, context=512)
    job = prepare_export(arguments.source, options)
    tokenizer = Tokenizer(job.tokenizer)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        job._pack(folder / "portable.satchel", False, 0)
        program = Program(folder / "portable.satchel", target="cpu")
        (compilation,) = job.compilations.values()
        files = compilation.compile(program, folder, lambda *_: None).files
        theirs = Reader(interpreted(PackageProgram(files[".mlpackage"])))
        ours = Reader(program.instance())
        ids = tokenizer.encode(TEXT, add_bos=False)[: arguments.tokens + 1]
        logits = [reader.rows(ids[:-1], 0) for reader in (theirs, ours)]
        both = [float(np.exp(surprise(each, ids[1:]).mean())) for each in logits]
        print(f"{arguments.source} {arguments.recipe}, {len(ids) - 1} tokens of the built-in text")
        print(f"perplexity: Core ML's package {both[0]:.3f}, satchel {both[1]:.3f}")
        apart, largest = np.abs(logits[0] - logits[1]).max(), np.abs(logits[1]).max()
        print(f"logits differ by at most {apart:.4f}, and are up to {largest:.1f}")
        prompt = tokenizer.encode(QUESTION, add_bos=False)
        answers = [greedy(reader.last, prompt) for reader in (theirs, ours)]
        same = next((i for i in range(ANSWER) if answers[0][i] != answers[1][i]), ANSWER)
        print(f"greedy: the first {same} of {ANSWER} tokens are the same")


if __name__ == "__main__":
    main()
