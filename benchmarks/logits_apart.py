"""How far the logits of targets and of the CPU's kernels lie apart, for the same tokens.

    python benchmarks/logits_apart.py llama.satchel --targets vulkan --kernels avx2,portable

Beside those of the CPU's best kernels, as a share of the largest logit. Each runs in a process of
its own.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

_ONE = """
import sys
import numpy as np
from satchel.llm.session import Session
from satchel.runtime.program import Program
tokens = np.random.default_rng(0).integers(0, 1000, int(sys.argv[4])).tolist()
np.save(sys.argv[3], Session(Program(sys.argv[1], target=sys.argv[2])).feed(tokens))
"""


def logits(program: Path, target: str, kernels: str, tokens: int) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        to = Path(folder) / "logits.npy"
        command = [sys.executable, "-c", _ONE, str(program), target, str(to), str(tokens)]
        subprocess.run(command, env={**os.environ, "SATCHEL_ISA": kernels}, check=True)
        return np.load(to)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("program", type=Path)
    parser.add_argument("--targets", default="vulkan")
    parser.add_argument("--kernels", default="portable")
    parser.add_argument("--tokens", type=int, default=20)
    arguments = parser.parse_args()
    best = logits(arguments.program, "cpu", "", arguments.tokens)
    others = [(target, "") for target in arguments.targets.split(",")]
    others += [("cpu", kernels) for kernels in arguments.kernels.split(",")]
    for target, kernels in others:
        other = logits(arguments.program, target, kernels, arguments.tokens)
        print(f"{target} {kernels:10} {np.abs(other - best).max() / np.abs(best).max():.2g}")


if __name__ == "__main__":
    main()
