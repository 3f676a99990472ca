"""The reference interpreter against torch, for every row of the op table."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ops.op_table import CASES
from satchel import _native
from satchel.graph.ops import OPS
from support.compare import assert_close
from support.op_case import OpCase


def test_every_op_has_a_row() -> None:
    assert {case.op for case in CASES} == set(OPS)


def test_the_native_core_runs_exactly_these_ops() -> None:
    assert sorted(_native.ops()) == sorted(OPS)


def test_rows_have_names_of_their_own() -> None:
    assert len({case.id for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_reference_is_what_torch_computes(case: OpCase) -> None:
    got, want = case.run_reference(), case.run_oracle(torch)
    assert len(got) == len(want) == len(case.calls)
    for call, (mine, theirs) in enumerate(zip(got, want, strict=True)):
        with np.errstate(over="ignore"):
            wanted = theirs.astype(mine.dtype)
        assert_close(mine, wanted, case.tolerance / 4, f"call {call}")
