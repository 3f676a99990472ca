"""Operators that are given tensors without numbers.

These are common in modules that are written for any size: a part of each head is rotated where the
other part is empty, or positions are cut from 0 to 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from satchel.graph.ir import Sym, Value
from satchel.torch.lowering import Lowering
from satchel.torch.operators.registry import OperatorError

# What is put somewhere is nothing, so that what it is put into stays.
_PUT = {"scatter", "scatter_add", "scatter_reduce", "index_put", "index_add", "index_copy"}
_PUT |= {"index_fill", "index_reduce", "masked_scatter", "slice_scatter", "put"}
_TAKE_THE_REST = {"cat", "concat", "stack"}


def of_nothing(low: Lowering, name: str, given: Sequence[Any]) -> Value | None:
    """A result with numbers that are not made of the empty arguments; None where the operator
    itself says what it makes of them, as a sum does."""
    empty = [v for v in _flat(given) if isinstance(v, Value) and v.type.is_empty]
    if not empty or name in _TAKE_THE_REST:
        return None
    if name in _PUT:
        return low.cast(given[0], low.dtype)
    if any(isinstance(d, Sym) for v in empty for d in v.shape):
        raise OperatorError("numbers made of an empty tensor whose other sizes are symbolic")
    return None


def _flat(arguments: Sequence[Any]) -> list[Any]:
    listed: list[Any] = []
    for each in arguments:
        listed += _flat(each) if isinstance(each, (list, tuple)) else [each]
    return listed
