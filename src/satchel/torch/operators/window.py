"""Windows of a tensor written out, and views by strides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.graph.ir import DType, Sym, Value
from satchel.torch.lowering import Lowering, axis_of, product_of
from satchel.torch.operators.index import size_of
from satchel.torch.operators.registry import OperatorError, aten


def window_places(
    size: Sequence[int],
    kernel: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> np.ndarray:
    """[kernel rows * columns, windows]: the pixel of an image that each tap sees; -1 outside."""
    at = []
    for length, taps, gap, edge, step in zip(size, kernel, dilation, padding, stride, strict=True):
        count = (length + 2 * edge - gap * (taps - 1) - 1) // step + 1
        at.append(np.arange(taps)[:, None] * gap + np.arange(count)[None] * step - edge)
    rows, columns = at
    y, x = rows[:, None, :, None], columns[None, :, None, :]
    inside = (y >= 0) & (y < size[0]) & (x >= 0) & (x < size[1])
    places: np.ndarray = np.where(inside, y * size[1] + x, -1)
    return places.reshape(rows.shape[0] * columns.shape[0], -1)


@aten("im2col")
def im2col(
    low: Lowering,
    x: Value,
    kernel: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Value:
    height, width = (low.known(d, "im2col") for d in x.shape[-2:])
    places = window_places((height, width), kernel, dilation, padding, stride).reshape(-1)
    flat = low.reshape(x, (product_of(x.shape[:-2]), height * width))
    if (places < 0).any():  # what lies outside is the zero behind the last pixel
        flat = low.pad(flat, (0, 0), (0, 1), 0)
    taken = low.take(flat, np.where(places < 0, height * width, places), 1)
    return low.reshape(taken, low.shape)


@aten("unfold")
def unfold(low: Lowering, x: Value, dim: int, size: int, step: int) -> Value:
    """Windows along one axis, as a new last axis."""
    rank = len(x.shape)
    if not rank:
        return low.reshape(x, low.shape)
    axis = axis_of(dim, rank)
    count = low.shape[axis]
    if isinstance(count, Sym):
        starts = low.mul(low.count(count), low.number(step, DType.i32))
        taps = low.constant(np.arange(size, dtype=np.int32), "taps")
        numbers = low.add(low.reshape(starts, (count, 1)), taps)
        taken = low.emit("take", x, low.emit("reshape", numbers, shape=(-1,)), axis=axis)
    else:
        places = np.arange(count)[:, None] * step + np.arange(size)
        taken = low.take(x, places.reshape(-1), axis)
    split = low.reshape(taken, (*x.shape[:axis], count, size, *x.shape[axis + 1 :]))
    order = [i for i in range(rank + 1) if i != axis + 1]
    return low.transpose(split, [*order, axis + 1])


@aten("diagonal")
def diagonal(low: Lowering, x: Value, offset: int = 0, first: int = 0, second: int = 1) -> Value:
    rank = len(x.shape)
    a, b = axis_of(first, rank), axis_of(second, rank)
    rest = [i for i in range(rank) if i not in (a, b)]
    if not offset and isinstance(x.shape[a], Sym) and x.shape[a] == x.shape[b]:
        return _symbolic_diagonal(low, low.transpose(x, [*rest, a, b]))
    rows, columns = (low.known(x.shape[i], "diagonal") for i in (a, b))
    count = low.known(low.shape[-1], "diagonal")
    start = offset if offset >= 0 else -offset * columns
    lead = tuple(x.shape[i] for i in rest)
    flat = low.reshape(low.transpose(x, [*rest, a, b]), (*lead, rows * columns))
    return low.take(flat, start + np.arange(count) * (columns + 1), len(lead))


def _symbolic_diagonal(low: Lowering, x: Value) -> Value:
    """Of square matrices: each row's entry of its own number."""
    *_, size, _ = x.shape
    numbers = low.reshape(low.count(size), (size, 1))
    wide = low.expand(numbers, (*x.shape[:-1], 1), x)
    return low.reshape(low.gather(x, wide, axis=len(x.shape) - 1), x.shape[:-1])


@aten("as_strided")
def as_strided(
    low: Lowering, x: Value, size: Sequence[int], stride: Sequence[int], offset: Any = None
) -> Value:
    places = strided_places(low, x, size, stride, offset)
    flat = low.reshape(x, (size_of(low, x),))
    return low.reshape(low.take(flat, places.reshape(-1), 0), low.shape)


def strided_places(
    low: Lowering, x: Value, size: Sequence[int], stride: Sequence[int], offset: Any
) -> NDArray[np.int64]:
    """The number of x that each entry of a view of its memory sees."""
    example = low.examples[0]
    own = _memory(low, example.size(), example.stride(), example.storage_offset())
    start = example.storage_offset() if offset is None else int(offset)
    wanted = _memory(low, size, stride, start)
    numbers = np.full(max(own.max(initial=0), wanted.max(initial=0)) + 1, -1)
    numbers[own] = np.arange(own.size).reshape(own.shape)
    places: NDArray[np.int64] = numbers[wanted]
    if (places < 0).any():
        raise OperatorError("a view by strides that leaves its tensor")
    return places


def _memory(low: Lowering, size: Any, stride: Any, offset: Any) -> NDArray[np.int64]:
    """Where in memory each entry lies."""
    places = np.asarray(low.known(offset, low.operator))
    for count, step in zip(size, stride, strict=True):
        reach = np.arange(low.known(count, low.operator)) * low.known(step, low.operator)
        places = places[..., None] + reach
    return places
