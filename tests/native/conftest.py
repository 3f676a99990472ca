"""What comes with the package for machines without Python, and programs to try it with."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import satchel
from satchel import _native
from support.tiny_llm import write_tiny_llm

sys.path.insert(0, str(Path(__file__).parents[1] / "exporter"))

DEVICE = Path(_native.__file__).parent / "device"


@pytest.fixture(scope="session")
def device() -> Path:
    if sys.platform == "win32":
        pytest.skip("the runner is not built for Windows")
    assert (DEVICE / "bin" / "satchel-run").is_file()
    return DEVICE


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llm(tmp_path_factory.mktemp("native") / "tiny")


@pytest.fixture(scope="session")
def program(checkpoint: Path) -> Path:
    output = checkpoint.parent / "tiny.satchel"
    return satchel.export(checkpoint, output, group_size=32, context=512, prefill_ar_len=64)


Runner = Callable[..., subprocess.CompletedProcess[str]]


def run_exactly(
    command: list[str], given: str | None = None, **more: Any
) -> subprocess.CompletedProcess[str]:
    """A program's output as it is: Python's text mode would change line ends."""
    data = None if given is None else given.encode()
    done = subprocess.run(
        command, input=data, capture_output=True, check=False, timeout=120, **more
    )
    return subprocess.CompletedProcess(
        command, done.returncode, done.stdout.decode(), done.stderr.decode()
    )


@pytest.fixture(scope="session")
def runner(device: Path) -> Runner:
    def run(*arguments: object, given: str | None = None) -> subprocess.CompletedProcess[str]:
        command = [str(device / "bin" / "satchel-run"), *map(str, arguments)]
        return run_exactly(command, given)

    return run


@pytest.fixture(scope="session")
def run_json(runner: Runner) -> Callable[..., dict[str, Any]]:
    def run(*arguments: object) -> dict[str, Any]:
        done = runner(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        document: dict[str, Any] = json.loads(done.stdout)
        return document

    return run


@pytest.fixture(scope="session")
def compiler() -> str:
    found = shutil.which("cc") or shutil.which("gcc")
    if found is None:
        pytest.skip("there is no C compiler")
    return found
