"""The one check of all model families: the same logits as transformers, however they are fed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import satchel
from satchel.runtime.program import Program
from support.arrays import integers

Logits = NDArray[np.float32]

CONTEXT, BLOCK = 96, 32
PREFILL, TOTAL = 71, 82  # two whole blocks and a shorter one, then one by one
TOLERANCE = 1e-4

TOKENS = integers(TOTAL, below=258, seed="tokens")


def prefill_then_decode(program: Program, tokens: NDArray[np.int32] = TOKENS) -> Logits:
    """Logits after every token: blocks through prefill_forward, the rest through kv_forward."""
    instance = program.instance(threads=2)
    prefill, kv = instance.method("prefill_forward"), instance.method("kv_forward")
    rows = []
    for start in range(0, PREFILL, BLOCK):
        block = tokens[start : min(start + BLOCK, PREFILL)]
        rows.append(prefill.run(block, [start], np.arange(len(block), dtype=np.int32))[0])
    rows += [kv.run(tokens[at : at + 1], [at])[0] for at in range(PREFILL, len(tokens))]
    return np.concatenate(rows)


def decode_only(program: Program, tokens: NDArray[np.int32] = TOKENS) -> Logits:
    """Logits after every token, one token at a time from the first."""
    kv = program.instance(threads=1).method("kv_forward")
    return np.concatenate([kv.run(tokens[at : at + 1], [at])[0] for at in range(len(tokens))])


def both_ways(path: Path) -> dict[str, Logits]:
    program = satchel.load(path)
    return {"prefill": prefill_then_decode(program), "decode": decode_only(program)}


def with_kernels(kernels: str, paths: list[Path], folder: Path) -> list[dict[str, Logits]]:
    """``both_ways`` of these programs, in a process that uses the kernels of that name."""
    result = folder / f"{kernels}.npz"
    tests = Path(__file__).parents[1]
    search = os.pathsep.join(filter(None, [str(tests), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "SATCHEL_ISA": kernels, "PYTHONPATH": search}
    command = [sys.executable, "-m", "models.family_check", str(result), *map(str, paths)]
    subprocess.run(command, env=environment, check=True, timeout=300)
    arrays = np.load(result)
    ways = ("prefill", "decode")
    return [{way: arrays[f"{number}.{way}"] for way in ways} for number in range(len(paths))]


def _main(result: str, *paths: str) -> None:
    arrays = {
        f"{number}.{way}": logits
        for number, path in enumerate(paths)
        for way, logits in both_ways(Path(path)).items()
    }
    np.savez(result, **arrays)  # type: ignore[arg-type]


if __name__ == "__main__":
    _main(*sys.argv[1:])
