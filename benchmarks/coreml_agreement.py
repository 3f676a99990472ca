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
from agreement import QUESTION, tell, tell_answers

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
        portable, made = job.both_forms(Path(name))
        theirs = Reader(interpreted(PackageProgram(made[".mlpackage"])))
        ours = Reader(Program(portable, target="cpu").instance())
        ids = tokenizer.encode(TEXT, add_bos=False)[: arguments.tokens + 1]
        print(f"{arguments.source} {arguments.recipe}, {len(ids) - 1} tokens of the built-in text")
        tell("Core ML's package", theirs.rows(ids[:-1], 0), ours.rows(ids[:-1], 0), ids[1:])
        tell_answers(theirs.last, ours.last, tokenizer.encode(QUESTION, add_bos=False))


if __name__ == "__main__":
    main()
