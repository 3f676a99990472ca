"""Loader and executor on Windows: cross-compiled with mingw, run by Wine.

apt-get install g++-mingw-w64-x86-64-posix wine64 wine && pytest tests/windows
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

import satchel
from arm.kernel_program import build, common_folder, need
from ops.op_table import CASES
from support.compare import assert_close
from support.program_jobs import Job, run_jobs
from support.tiny_llm import write_tiny_llm

COMPILER = "x86_64-w64-mingw32-g++-posix"
SETTINGS = (
    "-DCMAKE_SYSTEM_NAME=Windows",
    "-DCMAKE_SYSTEM_PROCESSOR=AMD64",
    f"-DCMAKE_CXX_COMPILER={COMPILER}",
    "-DCMAKE_BUILD_TYPE=Debug",
)


@pytest.fixture(scope="module")
def windows(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command that runs ``program_run``."""
    need("cmake", COMPILER, "wine")
    folder = common_folder(tmp_path_factory, "windows")
    # gcc's registers of AVX are not aligned there, so that a build has the portable kernels alone.
    build(folder, *SETTINGS, targets=("program_run", "untrue_sums"))
    os.environ |= {"WINEPREFIX": str(tmp_path_factory.mktemp("wine")), "WINEDEBUG": "-all"}
    # The first run makes a folder that stands for a Windows machine, and talks of it.
    sums = [str(folder / "untrue_sums.exe")]
    done = subprocess.run(["wine", *sums], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()) == (0, ["portable"]), done.stderr
    return ["wine", str(folder / "program_run.exe")]


def test_op_table(windows: list[str], tmp_path: Path) -> None:
    jobs = [
        Job(case.write(tmp_path / f"{i}.satchel"), [("forward", c) for c in case.calls])
        for i, case in enumerate(CASES)
    ]
    answers = run_jobs(windows, jobs, tmp_path, "portable")
    for case, answer in zip(CASES, answers, strict=True):
        assert answer.kernels == "portable"
        for got, want in zip(answer.calls, case.run_reference(), strict=True):
            assert not isinstance(got, str), f"{case.id}: {got}"
            assert_close(got[0], want, case.tolerance, f"{case.id} on Windows")


def test_language_model(windows: list[str], tmp_path: Path) -> None:
    """A prompt and a token behind it, as this machine computes them; caches lie in pages."""
    folder = write_tiny_llm(tmp_path / "checkpoint")
    path = satchel.export(folder, tmp_path / "größer.satchel", recipe="8da4w", group_size=32)
    program = satchel.load(path)
    instance = program.instance(threads=2)
    calls, wanted = [], []
    for at, count, method in ((0, 34, "prefill_forward"), (34, 1, "kv_forward")):
        given = {
            "tokens": np.arange(5 + at, 5 + at + count, dtype=np.int32),
            "position": np.arange(at, at + count, dtype=np.int32),
            "sequence": np.zeros(count, np.int32),
            "rows": np.array([count - 1], np.int32),
        }
        info = next(m for m in program.methods if m["name"] == method)
        inputs = [given[value["name"]] for value in info["inputs"]]
        calls.append((method, inputs))
        wanted.append(instance.method(method).run(*inputs)[0])
    (answer,) = run_jobs(windows, [Job(path, calls)], tmp_path, "portable")
    for got, want in zip(answer.calls, wanted, strict=True):
        assert not isinstance(got, str), got
        np.testing.assert_allclose(got[0], want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("name", "reason"), [("none", "cannot open"), ("empty", "is empty")])
def test_files_that_cannot_be_mapped(
    windows: list[str], tmp_path: Path, name: str, reason: str
) -> None:
    (tmp_path / "empty.satchel").touch()
    jobs = [Job(tmp_path / f"{name}.satchel", [])]
    (tmp_path / "jobs").write_bytes(jobs[0].to_bytes())
    command = [*windows, str(tmp_path / "jobs"), str(tmp_path / "results")]
    subprocess.run(command, capture_output=True, check=True)
    assert reason in (tmp_path / "results").read_text()
