"""Embeddings and everything that picks by number."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import mul
from typing import Any

import numpy as np

from satchel.graph.ir import Dim, DType, Shape, Sym, Value
from satchel.graph.ops.elementwise import broadcast
from satchel.torch.lowering import Lowering, axis_of
from satchel.torch.operators.choose import without_masks
from satchel.torch.operators.registry import aten


@aten("embedding")
def embedding(low: Lowering, table: Value, ids: Value, *_options: Any) -> Value:
    if table.constant is None:
        return index_by(low, table, ids, 0)
    if ids.constant is not None:
        return low.constant(table.constant[ids.constant], table.name)
    return low.emit("embedding", low.index(ids), table)


def index_by(low: Lowering, x: Value, numbers: Value, axis: int) -> Value:
    """x with one axis replaced by the shape of the numbers, which may be negative."""
    size = x.shape[axis]
    if x.constant is not None and numbers.constant is not None:
        return low.constant(np.take(x.constant, numbers.constant, axis), x.name)
    if numbers.constant is not None and isinstance(size, int):
        flat = np.asarray(numbers.constant).reshape(-1) % size
        picked = low.take(x, flat, axis)
    else:
        flat_numbers = _flat(low, from_the_front(low, low.index(numbers), size))
        picked = low.emit("take", x, flat_numbers, axis=axis)
    return low.reshape(picked, (*x.shape[:axis], *numbers.shape, *x.shape[axis + 1 :]))


def from_the_front(low: Lowering, numbers: Value, size: Dim) -> Value:
    """Negative numbers count from the end."""
    below = low.compare(numbers, low.number(0, DType.i32), kind="lt")
    return low.where(below, low.add(numbers, low.operand(size, DType.i32)), numbers)


@aten("index_select")
def index_select(low: Lowering, x: Value, dim: int, numbers: Value) -> Value:
    if not x.shape:  # one number, of which there is one entry
        return low.reshape(index_by(low, low.reshape(x, (1,)), numbers, 0), low.shape)
    return index_by(low, x, numbers, axis_of(dim, len(x.shape)))


def size_of(low: Lowering, x: Value) -> int:
    return int(np.prod([low.known(d, low.operator) for d in x.shape], dtype=np.int64))


def to_front(rank: int, first: int, count: int) -> list[int]:
    """The permutation that brings ``count`` axes from ``first`` on to the front."""
    moved = list(range(first, first + count))
    return [*moved, *(i for i in range(rank) if i not in moved)]


def flat_places(low: Lowering, x: Value, used: Sequence[tuple[int, Value]]) -> tuple[Value, Shape]:
    """Several numbers as one, among all entries of their axes; flat, and the shape it had."""
    shape = reduce(lambda a, b: broadcast(a, b, "index"), (n.shape for _, n in used))
    places: Value | None = None
    for axis, numbers in used:
        size = x.shape[axis]
        own = from_the_front(low, low.index(numbers), size)
        # A number that is too large must not become an entry of the next row.
        own = low.reshape(low.emit("take", low.count(size), _flat(low, own), axis=0), own.shape)
        if places is None:
            places = own
        else:
            places = low.add(low.mul(places, low.operand(size, DType.i32)), own)
    assert places is not None
    return _flat(low, low.expand(places, shape)), shape


def _flat(low: Lowering, x: Value) -> Value:
    return x if len(x.shape) == 1 else low.emit("reshape", x, shape=(-1,))


@aten("index", "_unsafe_index")
def index(low: Lowering, x: Value, numbers: Sequence[Value | None]) -> Value:
    used = [(axis, n) for axis, n in enumerate(without_masks(low, numbers)) if n is not None]
    lines = len({n.shape for _, n in used}) == 1 and len(used[0][1].shape) == 1
    symbolic = any(isinstance(d, Sym) for v in (x, *(n for _, n in used)) for d in v.shape)
    if symbolic and not lines and _outward(used):
        return _outer_index(low, x, used)
    if len(used) == 1:
        axis, one = used[0]
        return index_by(low, x, one, axis)
    axes = [axis for axis, _ in used]
    places, shape = flat_places(low, x, used)
    rest = [i for i in range(len(x.shape)) if i not in axes]
    # The numbers' dimensions stand where theirs were; first, if something lies between these.
    together = axes == list(range(axes[0], axes[0] + len(axes)))
    first = axes[0] if together else 0
    ordered = low.transpose(x, [*rest[:first], *axes, *rest[first:]])
    entries = reduce(mul, (x.shape[i] for i in axes))
    before, behind = ordered.shape[:first], ordered.shape[first + len(axes) :]
    picked = low.emit("take", low.reshape(ordered, (*before, entries, *behind)), places, axis=first)
    return low.reshape(picked, (*before, *shape, *behind))


def _long_places(used: Sequence[tuple[int, Value]]) -> list[list[int]]:
    """Along which dimensions of the result each of the numbers goes."""
    rank = max(len(numbers.shape) for _, numbers in used)
    return [
        [rank - len(numbers.shape) + i for i, d in enumerate(numbers.shape) if d != 1]
        for _, numbers in used
    ]


def _outward(used: Sequence[tuple[int, Value]]) -> bool:
    """Whether each goes along a dimension of its own, in the order of the axes."""
    long = _long_places(used)
    places = [place for own in long for place in own]
    axes = [axis for axis, _ in used]
    together = axes == list(range(axes[0], axes[0] + len(axes)))
    return together and places == sorted(set(places)) and all(len(own) < 2 for own in long)


def _outer_index(low: Lowering, x: Value, used: Sequence[tuple[int, Value]]) -> Value:
    """Numbers of which each goes along a dimension of its own, as masks are made of them."""
    for axis, numbers in used:
        line = low.index(low.reshape(numbers, tuple(d for d in numbers.shape if d != 1) or (1,)))
        x = low.emit("take", x, from_the_front(low, line, x.shape[axis]), axis=axis)
    return low.reshape(x, low.shape)


@aten("gather")
def gather(low: Lowering, x: Value, dim: int, numbers: Value, **_options: Any) -> Value:
    if not x.shape or not numbers.shape:  # one number, as a row of one
        row, places = (v if v.shape else low.reshape(v, (1,)) for v in (x, numbers))
        return low.reshape(gather(low, row, 0, places), numbers.shape)
    axis = axis_of(dim, len(x.shape))
    return low.emit("gather", x, low.index(numbers), axis=axis)
