"""The commands that try damaged files for as long as one likes, for a few seconds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TOOL = Path(__file__).parents[1] / "tools" / "fuzz.py"


def fuzz(*arguments: str) -> Any:
    done = subprocess.run(
        [sys.executable, str(TOOL), *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("kind", "counted"),
    [("structure", "files"), ("templates", "templates"), ("inputs", "pictures")],
)
def test_a_short_run(kind: str, counted: str) -> None:
    result = fuzz(kind, "--seconds", "3", "--seed", "5")
    assert result[kind][counted] > 2 and result["seed"] == 5


def test_a_short_soak() -> None:
    result = fuzz("soak", "--seconds", "2")
    assert result["soak"]["rounds"] >= 20
