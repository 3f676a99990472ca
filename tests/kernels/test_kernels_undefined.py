"""Kernels under the sanitizer for undefined behaviour, with numbers of a hostile file."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

NATIVE = Path(__file__).parents[2] / "native"


def test_sums_that_are_not_those_of_the_weights(tmp_path: Path) -> None:
    """Nothing of it overflows, and no null pointer is moved."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("not installed: g++")
    sources = ["dispatch", "portable", "pack", "bandwidth", "int8_rate"]
    command = [compiler, "-std=c++20", "-O0", "-ffp-contract=off", "-Wno-psabi", "-pthread"]
    command += ["-fsanitize=undefined", "-fno-sanitize-recover=all", f"-I{NATIVE / 'kernels'}"]
    command += [str(NATIVE / "kernels" / f"{name}.cpp") for name in sources]
    command += [str(NATIVE / "tests" / "untrue_sums.cpp"), "-o", str(tmp_path / "check")]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    if "cannot find -lubsan" in built.stderr:
        pytest.skip("the compiler has no sanitizer")
    assert built.returncode == 0, built.stderr
    done = subprocess.run([tmp_path / "check"], capture_output=True, text=True, check=False)
    assert (done.returncode, "portable" in done.stdout) == (0, True), done.stderr
