"""Every set of kernels that this machine can run against the reference, over the op table."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from ops import native_worker
from ops.op_table import CASES
from satchel import _native
from support.compare import assert_close
from support.op_case import OpCase

Results = Mapping[str, Mapping[str, np.ndarray]]


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """By kernels: the results of all programs. The same files serve every set of kernels."""
    folder = tmp_path_factory.mktemp("ops")
    for number, case in enumerate(CASES):
        case.write(folder / f"{number}.satchel")
    tests = Path(native_worker.__file__).parents[1]
    path = os.pathsep.join(filter(None, [str(tests), os.environ.get("PYTHONPATH")]))
    workers = {}
    for kernels in _native.kernels.available():
        command = [sys.executable, "-m", "ops.native_worker", folder, folder / f"{kernels}.npz"]
        environment = {**os.environ, "SATCHEL_ISA": kernels, "PYTHONPATH": path}
        workers[kernels] = subprocess.Popen(
            command, env=environment, stderr=subprocess.PIPE, text=True
        )
    results = {}
    for kernels, worker in workers.items():
        _, errors = worker.communicate(timeout=300)
        assert worker.returncode == 0, f"{kernels} stopped with {worker.returncode}: {errors}"
        results[kernels] = dict(np.load(folder / f"{kernels}.npz"))
    return results


@pytest.mark.parametrize("kernels", _native.kernels.available())
def test_the_chosen_kernels_were_used(native: Results, kernels: str) -> None:
    assert str(native[kernels]["kernels"]) == kernels


@pytest.mark.parametrize("number", range(len(CASES)), ids=[case.id for case in CASES])
def test_kernels_compute_what_the_reference_does(native: Results, number: int) -> None:
    case: OpCase = CASES[number]
    expected = case.run_reference()
    for kernels, results in native.items():
        assert f"{number}.error" not in results, results[f"{number}.error"]
        for call, want in enumerate(expected):
            got = results[f"{number}.{call}"]
            assert got.dtype == want.dtype
            assert_close(got, want, case.tolerance, f"{kernels}, call {call}")
