"""What the emulator's first run tells while it compiles."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from satchel.backends.qnn.first_run import LABEL, compiling_told
from satchel.remarks import Remark


def manifest(shared: bool = True) -> Any:
    """As much of one as is looked at: three graphs of two methods."""
    names = {"kv_forward": ["a.onnx", "b.onnx"], "prefill_forward": ["c.onnx"]}
    methods = {
        name: SimpleNamespace(shards=[SimpleNamespace(model=file) for file in files])
        for name, files in names.items()
    }
    return SimpleNamespace(shared=shared, methods=methods)


def test_graphs_are_counted_as_they_appear(tmp_path: Path) -> None:
    seen: list[tuple[str, int, int | None]] = []

    def heard(label: str, done: int, total: int | None) -> None:
        seen.append((label, done, total))

    with (
        pytest.warns(Remark, match="3 graphs are compiled .* takes minutes, once"),
        compiling_told(manifest(), tmp_path, heard, every=0.01),
    ):
        for file in ("a.onnx", "b.onnx", "c.onnx"):
            before = len(seen)
            (tmp_path / file).touch()
            while len(seen) < before + 2:
                time.sleep(0.005)
    assert {(label, total) for label, _, total in seen} == {(LABEL, 3)}
    counts = [done for _, done, _ in seen]
    assert counts == sorted(counts) and set(counts) >= {1, 2, 3}


def test_a_failure_is_passed_on_and_no_more_is_told(tmp_path: Path) -> None:
    seen: list[int] = []
    with (
        pytest.warns(Remark),
        pytest.raises(ValueError, match="no licence"),
        compiling_told(manifest(), tmp_path, lambda _l, done, _t: seen.append(done), every=0.01),
    ):
        raise ValueError("no licence")
    told = len(seen)
    time.sleep(0.05)
    assert len(seen) == told


@pytest.mark.parametrize("shared", [True, False])
def test_later_runs_and_binaries_that_load_are_quiet(tmp_path: Path, shared: bool) -> None:
    for file in ("a.onnx", "b.onnx", "c.onnx") if shared else ():
        (tmp_path / file).touch()

    def never(label: str, done: int, total: int | None) -> None:
        raise AssertionError(label)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with compiling_told(manifest(shared), tmp_path, never):
            pass
