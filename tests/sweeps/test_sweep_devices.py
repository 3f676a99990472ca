"""Cells on a device: what ssh would run there runs here, in a folder of its own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import satchel
from satchel import _native
from satchel.sweeps.devices import BenchCall, open_device
from satchel.sweeps.planning import answers

RUNNER = Path(_native.__file__).parent / "device" / "bin" / "satchel-run"

# In the place of ssh: the last argument is a script for the device's shell.
STAND_IN = """\
import os, subprocess, sys
sys.exit(subprocess.run(["sh", "-c", sys.argv[-1]], cwd=os.environ["DEVICE_HOME"]).returncode)
"""


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if not RUNNER.is_file():
        pytest.skip("the package was built without a runner")
    (tmp_path / "home").mkdir()
    (tmp_path / "ssh.py").write_text(STAND_IN)
    monkeypatch.setenv("SATCHEL_SSH", f"{sys.executable} {tmp_path / 'ssh.py'}")
    monkeypatch.setenv("DEVICE_HOME", str(tmp_path / "home"))
    answers.cache_clear()
    return "ssh:board"


def test_a_device_is_an_axis(board: str, tiny: dict[str, Any], tmp_path: Path) -> None:
    tiny["devices"] = [board, "ssh:-nobody", "telnet:old"]
    tiny["include"] = [{"devices": [board], "modes": ["lookahead"]}]
    rows = satchel.sweep(tiny, tmp_path / "results")
    there, unnamed, unknown, guessing = rows
    assert there["status"] == "ok" and there["device"] == board
    assert there["decode_tok_s"] > 0 and there["system"].startswith("Linux")
    assert f"--device {board}" in there["bench_command"]
    assert list((tmp_path / "home").rglob("*.satchel"))  # it was sent there
    assert unnamed["status"] == "impossible" and "is no device" in unnamed["error"]
    assert unknown["status"] == "impossible" and "not a device" in unknown["error"]
    assert guessing["status"] == "impossible" and "lookahead" in guessing["error"]


def test_a_model_that_is_no_language_model(board: str, tmp_path: Path) -> None:
    from torch import nn, zeros

    program = satchel.export(
        nn.Conv2d(3, 4, 3).eval(), (zeros(1, 3, 16, 16),), tmp_path / "c.satchel"
    )
    call = BenchCall(None, None, None, warmup=1, runs=2, threads=1)
    there = open_device(board)
    assert there.refuses(call) is None
    found = there.bench(program, call, tmp_path / "log", 60, ())
    here = satchel.bench(program, runs=2)
    assert set(found) == {*here, "device", "program"}
    assert (found["method"], found["runs"]) == ("forward", 2) and found["median_s"] > 0
    assert found["arena_bytes"] == here["arena_bytes"] and found["checksum"] == here["checksum"]
