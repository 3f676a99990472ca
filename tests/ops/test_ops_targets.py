"""The op table on every target, placed, compiled and opened as exports are.

One row of each op runs always. All rows that a target takes run with

    python -m pytest tests/ops/test_ops_targets.py -m all_rows

on the NPU's emulator in some minutes. What a target does not take must have a reason.
"""

from __future__ import annotations

import importlib.util
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest

from ops.op_table import CASES
from ops.rows_on_target import Joined, TargetRow, difference, first_call
from satchel.backends import find_target
from satchel.graph.ops import OPS

# A target, a recipe, and how far from the reference its results may be, in parts of their length:
# from what it should compute with all its rounding, and from floats.
TARGETS = {
    "cpu": ("fp32", 1e-4, 1e-4),
    "qnn:SM8750-16": ("16a8w", 0.025, 0.02),
    "qnn:SM8750-8": ("int8", 0.03, 0.1),
}
# What rounded inputs alone make of these: a weight of one in two thousand keys is less than a step
# of 8 bits, a divisor near zero is zero, and a small difference of large numbers is lost.
_ROUGH = {
    ("qnn:SM8750-8", "attention_full-1x3x2100_1x8x8_bias(1, 1, 3, 2100)"): (0.04, 0.4),
    ("qnn:SM8750-8", "div-2x3x4x5_1x3x1x5"): (0.03, 0.4),
    ("qnn:SM8750-8", "div-3x1_3x5003"): (0.03, 10.0),
    ("qnn:SM8750-16", "div-3x1_3x5003"): (0.025, 0.1),
    ("qnn:SM8750-8", "layer_norm-offset"): (0.03, 0.2),
}
_AT_ONCE = 40


def _rows(name: str) -> dict[str, list[TargetRow]]:
    """By op: the rows that a target takes as a whole."""
    target = find_target(name.partition("-")[0])
    rows: dict[str, list[TargetRow]] = defaultdict(list)
    for case in CASES:
        row = first_call(case)
        if row and not any(target.supports(node) for node in row.graph().nodes):
            rows[case.op].append(row)
    return rows


def _needs(name: str) -> None:
    extra = find_target(name.partition("-")[0]).extra
    if extra and importlib.util.find_spec(extra.module) is None:
        pytest.skip(f"pip install 'satchel[{extra.name}]'")


def _check(name: str, rows: Sequence[TargetRow], path: Path) -> None:
    recipe, *usual = TARGETS[name]
    target = find_target(name.partition("-")[0])
    joined = Joined(rows)
    program = joined.export(target, recipe, path)
    method = program.instance().method("forward")
    got = dict(zip(method.outputs, method.run(**joined.inputs), strict=True))
    reference = target.open_reference(program).method("forward")
    rounded = dict(zip(reference.outputs, reference.run(**joined.inputs), strict=True))
    exact = joined.expected()
    wrong = []
    for number, row in enumerate(rows):
        out = f"{number}.out"
        assert got[out].shape == exact[out].shape
        found = difference(got[out], rounded[out]), difference(rounded[out], exact[out])
        own, floats = _ROUGH.get((name, row.case.id), usual)
        if found[0] > own or found[1] > floats:
            wrong.append(f"{row.case.id}: {found[0]:.5f} of its own, {found[1]:.5f} of floats")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", TARGETS)
def test_one_row_of_each_op(name: str, tmp_path: Path) -> None:
    _needs(name)
    by_op = _rows(name)
    sample = [rows[len(rows) // 2] for rows in by_op.values()]
    assert len(sample) > 30
    _check(name, sample, tmp_path / "p.satchel")


@pytest.mark.all_rows
@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("op", sorted(OPS))
def test_all_rows(name: str, op: str, tmp_path: Path) -> None:
    _needs(name)
    rows = _rows(name)[op]
    for start in range(0, len(rows), _AT_ONCE):
        _check(name, rows[start : start + _AT_ONCE], tmp_path / f"{start}.satchel")


@pytest.mark.parametrize("name", ["cpu", "qnn:SM8750"])
def test_what_a_target_does_not_take_has_a_reason(name: str) -> None:
    target = find_target(name)
    for case in CASES:
        for node in case.graph().nodes:
            reason = target.supports(node)
            assert reason is None or len(reason) > 5
