"""Damaged programs in a process of their own: no crash, no hang, a typed error or a safe run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from attacks import good_bytes

from support.sized_program import write_sized_program

WORKER = Path(__file__).parent / "attack_worker.py"


def _attack(program: Path, *arguments: str) -> Any:
    paths = [str(WORKER.parents[1]), os.environ.get("PYTHONPATH", "")]
    result = subprocess.run(
        [sys.executable, str(WORKER), arguments[0], str(program), *arguments[1:]],
        capture_output=True,
        text=True,
        timeout=900,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
        check=False,
    )
    assert result.returncode == 0, result.stderr[-4000:]
    return json.loads(result.stdout)


@pytest.fixture
def good(tmp_path: Path) -> Path:
    program = tmp_path / "good.satchel"
    program.write_bytes(good_bytes())
    return program


def test_every_byte_of_methods_and_index_flipped(good: Path) -> None:
    """The checksums are made right again, so that the structure itself is what is checked."""
    totals = _attack(good, "flip")
    assert totals["files"] > 15_000
    assert totals["refused"] > 10 * totals["files"] // 13
    assert totals["loaded"] and totals["ran"]


@pytest.mark.parametrize("seed", [1, 2])
def test_random_changes(seed: int, good: Path) -> None:
    totals = _attack(good, "random", "--count", "1500", "--seed", str(seed))
    assert totals["files"] == 1500
    assert totals["loaded"] > 150 and totals["ran"] > 150 and totals["refused"] > 500


@pytest.mark.parametrize(("kind", "most"), [("flip", 4000), ("random", 800)])
def test_sizes_that_are_computed_or_decided_by_the_run(
    kind: str, most: int, tmp_path: Path
) -> None:
    program = write_sized_program(tmp_path / "sized.satchel")
    totals = _attack(program, kind, "--count", str(most))
    assert totals["files"] == most
    assert totals["loaded"] > 30 and totals["ran"] > 100 and totals["refused"] > 500
