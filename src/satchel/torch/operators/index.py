"""Embeddings and everything that picks by number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from satchel.graph.ir import DType, Value
from satchel.torch.lowering import Lowering, axis_of
from satchel.torch.operators.registry import OperatorError, aten


@aten("embedding")
def embedding(low: Lowering, table: Value, ids: Value, *_options: Any) -> Value:
    if table.constant is None:
        return index_by(low, table, ids, 0)
    if ids.constant is not None:
        return low.constant(table.constant[ids.constant], table.name)
    return low.emit("embedding", low.cast(ids, DType.i32), table)


def index_by(low: Lowering, x: Value, numbers: Value, axis: int) -> Value:
    """x with one axis replaced by the shape of the numbers, which may be negative."""
    size = low.known(x.shape[axis], "indexing")
    if x.constant is not None and numbers.constant is not None:
        return low.constant(np.take(x.constant, numbers.constant, axis), x.name)
    if numbers.constant is not None:
        flat = np.asarray(numbers.constant).reshape(-1) % size
        picked = low.take(x, flat, axis)
    else:
        count = int(np.prod([low.known(d, "indexing") for d in numbers.shape], dtype=np.int64))
        flat_numbers = low.reshape(_from_the_front(low, numbers, size), (count,))
        picked = low.emit("take", x, flat_numbers, axis=axis)
    return low.reshape(picked, (*x.shape[:axis], *numbers.shape, *x.shape[axis + 1 :]))


def _from_the_front(low: Lowering, numbers: Value, size: int) -> Value:
    """Negative numbers count from the end."""
    below = low.compare(numbers, low.number(0, DType.i32), kind="lt")
    return low.where(below, low.add(numbers, low.number(size, DType.i32)), numbers)


@aten("index_select")
def index_select(low: Lowering, x: Value, dim: int, numbers: Value) -> Value:
    return index_by(low, x, numbers, axis_of(dim, len(x.shape)))


@aten("index")
def index(low: Lowering, x: Value, numbers: Sequence[Value | None]) -> Value:
    used = [(axis, n) for axis, n in enumerate(numbers) if n is not None]
    if any(n.dtype == DType.boolean for _, n in used):
        raise OperatorError("picking by a mask, whose count is not known")
    if len(used) == 1:
        axis, one = used[0]
        return index_by(low, x, one, axis)
    axes = [axis for axis, _ in used]
    if axes != list(range(axes[0], axes[0] + len(axes))):
        raise OperatorError("several indices that are not next to each other")
    if any(n.constant is None for _, n in used):
        raise OperatorError("several indices that are computed")
    sizes = [low.known(x.shape[axis], "indexing") for axis in axes]
    places = np.broadcast_arrays(*(np.asarray(n.constant) for _, n in used))
    wrapped = [p % s for p, s in zip(places, sizes, strict=True)]
    flat = np.ravel_multi_index(wrapped, sizes).astype(np.int32)
    first, after = axes[0], axes[-1] + 1
    count = int(np.prod(sizes, dtype=np.int64))
    joined = low.reshape(x, (*x.shape[:first], count, *x.shape[after:]))
    return index_by(low, joined, low.constant(flat, "numbers"), first)


@aten("gather")
def gather(low: Lowering, x: Value, dim: int, numbers: Value, **_options: Any) -> Value:
    axis = axis_of(dim, len(x.shape))
    return low.emit("gather", x, low.cast(numbers, DType.i32), axis=axis)
