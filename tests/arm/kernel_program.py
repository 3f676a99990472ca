"""Building ``native/tests`` for this machine or for 64-bit Arm, and running it there."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

SOURCE = Path(__file__).parents[2]
ARM_COMPILER = "aarch64-linux-gnu-g++"
EMULATOR = "qemu-aarch64"


def need(*programs: str) -> None:
    """Skips the test when one of the programs is not installed."""
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")


def common_folder(factory: pytest.TempPathFactory, name: str) -> Path:
    """The same for all processes of a test run, so that what is built there is built once."""
    root = factory.getbasetemp()
    folder = (root.parent if "PYTEST_XDIST_WORKER" in os.environ else root) / name
    folder.mkdir(exist_ok=True)
    return folder


def build(folder: Path, *settings: str, targets: tuple[str, ...] = ("kernel_check",)) -> Path:
    """The folder with the built programs; one process at a time builds there."""
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _build(folder, settings, targets)
    return folder


def _build(folder: Path, settings: tuple[str, ...], targets: tuple[str, ...]) -> None:
    configure = ["cmake", "-S", str(SOURCE), "-B", str(folder), "-DSATCHEL_TESTS=ON", *settings]
    if shutil.which("ninja"):
        configure += ["-G", "Ninja"]
    compile_it = ["cmake", "--build", str(folder), "--parallel", "2", "--target", *targets]
    for command in (configure, compile_it):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "warning:" not in done.stdout + done.stderr, done.stdout + done.stderr


@dataclass(frozen=True)
class KernelProgram:
    """``kernel_check`` on one CPU: the command before it names an emulator and what it emulates."""

    path: Path
    emulator: tuple[str, ...] = ()

    def on_cpu(self, name: str) -> KernelProgram:
        return KernelProgram(self.path, (EMULATOR, "-cpu", name))

    def run(self, *arguments: str, isa: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.emulator, str(self.path), *arguments],
            env={**os.environ, "SATCHEL_ISA": isa},
            capture_output=True,
            text=True,
            check=False,
        )

    def machine(self, isa: str = "") -> dict[str, Any]:
        """The tables there are, the one in use, and the CPU's features."""
        done = self.run(isa=isa)
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))

    def check(self, cases: Path, *table: str) -> list[dict[str, Any]]:
        """What each table made of each case."""
        done = self.run(str(cases), *table)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]
