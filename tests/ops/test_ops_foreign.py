"""The op table in the files of others: Core ML packages, run by the interpreter of ML programs, and
.pte files, run by ExecuTorch where it is installed.

One row of each op runs always. All rows that a target takes run with

    python -m pytest tests/ops/test_ops_foreign.py -m all_rows

What a target takes it must compute: a row either has the reference's numbers or was refused.
"""

from __future__ import annotations

import importlib.util
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from numpy.typing import NDArray

from ops.op_table import CASES
from ops.rows_on_target import Joined, TargetRow, difference, first_call
from satchel.backends import find_target
from satchel.graph.ir import DType
from satchel.graph.ops import OPS
from support.op_case import OpCase, Stored

Array = NDArray[Any]
_AT_ONCE = 40


def run_package(path: Path, joined: Joined) -> dict[str, Array]:
    from satchel.backends.coreml.interpreter import PackageInterpreter

    return PackageInterpreter(path).run(None, **joined.inputs)


def run_pte(path: Path, joined: Joined) -> dict[str, Array]:
    import torch
    from executorch.runtime import Runtime

    method = Runtime.get().load_program(path).load_method("forward")
    given = [torch.tensor(joined.inputs[value.name]) for value in joined.graph.inputs]
    names = [value.name for value in joined.graph.outputs]
    return {n: out.numpy() for n, out in zip(names, method.execute(given), strict=True)}


@dataclass(frozen=True)
class Form:
    """How rows are stored for a target, what runs them, and how far from the reference they may
    be, in parts of their length."""

    recipe: str
    matrix: str
    run: Callable[[Path, Joined], dict[str, Array]]
    tolerance: float


FORMS = {
    "coreml": Form("fp16", "matrix_f16", run_package, 1e-3),  # constants have 16 bits
    # As far as our own kernels may be: a mean of large numbers is taken in 32 bits by both.
    "executorch": Form("fp32", "matrix_f32", run_pte, 1e-4),
}


def _cases(name: str) -> dict[str, list[OpCase]]:
    """By op: what a target takes as a module's, with weights as its recipe stores them."""
    target, cases = find_target(name), defaultdict(list)
    for case in CASES:
        stored = [s.encoding for s in case.slots if isinstance(s, Stored)]
        if any(e.is_matrix and e.kind != FORMS[name].matrix for e in stored):
            continue
        graph = case.graph()
        floats = all(v.dtype == DType.f32 for v in (*graph.inputs, *graph.outputs))
        if floats and not any(target.supports(node) for node in graph.nodes):
            cases[case.op].append(case)
    for op in ("rope", "take_rows"):  # of language models alone
        cases.pop(op, None)
    return cases


def _rows(cases: Iterable[OpCase]) -> Iterator[TargetRow]:
    return (row for case in cases if (row := first_call(case)) is not None)


def _needs(name: str) -> None:
    extra = find_target(name).extra
    assert extra is not None
    if importlib.util.find_spec(extra.module) is None:
        pytest.skip(f"pip install 'satchel[{extra.name}]'")


def _check(name: str, rows: Sequence[TargetRow], folder: Path) -> None:
    form, target, joined = FORMS[name], find_target(name), Joined(rows)
    path = joined.write(target, form.recipe, folder / f"rows{target.writes.suffix}")
    got, exact = form.run(path, joined), joined.expected()
    wrong = []
    for number, row in enumerate(rows):
        found, wanted = got[f"{number}.out"], exact[f"{number}.out"]
        if found.shape != wanted.shape:
            wrong.append(f"{row.case.id}: {found.shape} and not {wanted.shape}")
        elif not difference(found, wanted) <= form.tolerance:
            wrong.append(f"{row.case.id}: {difference(found, wanted):.6f}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", FORMS)
def test_one_row_of_each_op(name: str, tmp_path: Path) -> None:
    _needs(name)
    sample = [next(_rows(cases[len(cases) // 2 :]), None) for cases in _cases(name).values()]
    taken = [row for row in sample if row is not None]
    assert len(taken) > 30
    _check(name, taken, tmp_path)


@pytest.mark.all_rows
@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("op", sorted(OPS))
def test_all_rows(name: str, op: str, tmp_path: Path) -> None:
    _needs(name)
    rows = list(_rows(_cases(name)[op]))
    for start in range(0, len(rows), _AT_ONCE):
        (folder := tmp_path / str(start)).mkdir()
        _check(name, rows[start : start + _AT_ONCE], folder)


@pytest.mark.parametrize("name", FORMS)
def test_what_a_target_does_not_take_has_a_reason(name: str) -> None:
    _needs(name)
    target = find_target(name)
    for case in CASES:
        for node in case.graph().nodes:
            reason = target.supports(node)
            assert reason is None or len(reason) > 5
