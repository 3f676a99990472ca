"""Runs the programs of the op table in a process of its own, with one set of kernels.

The kernels are chosen once per process (SATCHEL_ISA), so each set needs its own.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import satchel
from ops.op_table import CASES


def run_all(programs: Path, results: Path) -> None:
    """programs/N.satchel is the program of case N; results gets N.C for call C of it."""
    arrays = {}
    kernels = ""
    for number, case in enumerate(CASES):
        try:
            instance = satchel.load(programs / f"{number}.satchel").instance(threads=2)
            kernels = instance.kernels
            method = instance.method("forward")
            for call, inputs in enumerate(case.calls):
                (arrays[f"{number}.{call}"],) = method.run(*inputs)
        except satchel.SatchelError as error:
            arrays[f"{number}.error"] = np.array(str(error))
    np.savez(results, kernels=np.array(kernels), **arrays)


if __name__ == "__main__":
    run_all(Path(sys.argv[1]), Path(sys.argv[2]))
