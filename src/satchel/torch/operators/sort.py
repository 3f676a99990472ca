"""Order: sorting, the greatest ones, and where a number belongs."""

from __future__ import annotations

from typing import Any

import numpy as np

from satchel.graph.ir import Dim, DType, Sym, Value
from satchel.torch.lowering import Lowering, axis_of
from satchel.torch.operators.choose import first_places
from satchel.torch.operators.registry import OperatorError, aten


def _order(low: Lowering, x: Value, axis: int, descending: bool) -> Value:
    numbers = low.cast(x, DType.i32) if x.dtype == DType.boolean else x
    return low.argsort(numbers, axis=axis, descending=int(descending))


@aten("sort", "argsort")
def sort(low: Lowering, x: Value, *given: Any, **options: Any) -> Value | list[Value]:
    """Overloads differ in whether ``stable`` comes first; ours always is."""
    stable_first = len(given) > 0 and (given[0] is None or isinstance(given[0], bool))
    listed = list(given[1:] if stable_first else given)
    dim = options.get("dim", listed[0] if listed else -1)
    descending = options.get("descending", listed[1] if len(listed) > 1 else False)
    if not x.shape:
        place = low.constant(np.zeros((), np.int64))
        return place if low.operator == "argsort" else [x, place]
    axis = axis_of(dim, len(x.shape))
    order = _order(low, x, axis, descending)
    wide = low.cast(order, DType.i64)
    return wide if low.operator == "argsort" else [low.gather(x, order, axis=axis), wide]


def _entries(low: Lowering, x: Value, axis: int, start: int, stop: int) -> Value:
    """Of a symbolic size too; where there are fewer, the run says so."""
    if isinstance(x.shape[axis], Sym):
        return low.take(x, np.arange(start, stop), axis)
    return low.slice(x, axis, start, stop)


@aten("topk")
def topk(
    low: Lowering,
    x: Value,
    k: Dim,
    dim: int = -1,
    largest: bool = True,
    sorted: bool = True,
) -> list[Value]:
    if not x.shape:
        return [x, low.constant(np.zeros((), np.int64))]
    axis = axis_of(dim, len(x.shape))
    order = _order(low, x, axis, largest)
    if isinstance(k, Sym):  # all of them, or a number of them if there are more
        if low.undecided(k):
            places = first_places(low, x.shape[axis], k.maximum, k)
        else:
            places = low.count(k)
        order = low.emit("take", order, places, axis=axis)
    else:
        order = _entries(low, order, axis, 0, k)
    return [low.gather(x, order, axis=axis), low.cast(order, DType.i64)]


@aten("kthvalue")
def kthvalue(low: Lowering, x: Value, k: int, dim: int = -1, keepdim: bool = False) -> list[Value]:
    axis = axis_of(dim, len(x.shape))
    order = _entries(low, _order(low, x, axis, False), axis, k - 1, k)
    return [
        low.reshape(low.gather(x, order, axis=axis), low.shape),
        low.reshape(low.cast(order, DType.i64), low.shape),
    ]


@aten("median")
def median(low: Lowering, x: Value, dim: Any = None, keepdim: bool = False) -> Any:
    """The lower of the two in the middle."""
    if dim is None:
        count = int(np.prod([low.known(d, "median") for d in x.shape], dtype=np.int64))
        return kthvalue(low, low.reshape(x, (count,)), (count + 1) // 2, 0)[0]
    if not x.shape:  # one number, as a row of one
        return [low.reshape(each, ()) for each in kthvalue(low, low.reshape(x, (1,)), 1, 0)]
    size = x.shape[axis_of(dim, len(x.shape))]
    if isinstance(size, Sym):
        return _median_of_symbolic(low, x, axis_of(dim, len(x.shape)))
    return kthvalue(low, x, (size + 1) // 2, dim, keepdim)


def _median_of_symbolic(low: Lowering, x: Value, axis: int) -> list[Value]:
    last = low.sub(low.size(x.shape[axis]), low.number(1, DType.i32))
    middle = low.integer(last, low.number(2, DType.i32), kind="floor_div")
    order = low.emit("take", _order(low, x, axis, False), middle, axis=axis)
    return [
        low.reshape(low.gather(x, order, axis=axis), low.shape),
        low.reshape(low.cast(order, DType.i64), low.shape),
    ]


@aten("cummax", "cummin")
def cummax(low: Lowering, x: Value, dim: int) -> list[Value]:
    """The extremes so far, and where the last of them is."""
    if not x.shape:  # one number, as a row of one
        return [low.reshape(each, ()) for each in cummax(low, low.reshape(x, (1,)), 0)]
    axis = axis_of(dim, len(x.shape))
    numbers = low.cast(x, DType.i32) if x.dtype == DType.boolean else x
    so_far = low.cumulate(numbers, axis=axis, kind=low.operator.removeprefix("cum"))
    count = low.count(x.shape[axis])
    count = low.reshape(count, (*count.shape, *(1 for _ in x.shape[axis + 1 :])))
    here = low.compare(numbers, so_far, kind="eq")
    places = low.where(here, low.expand(count, x.shape, x), low.number(0, DType.i32))
    last = low.cumulate(places, axis=axis, kind="max")
    return [low.cast(so_far, x.dtype), low.cast(last, DType.i64)]


def _places(low: Lowering, borders: Value, x: Value, right: bool) -> Value:
    """How many borders are below each number, or not above it."""
    dtype = DType.f32 if DType.f32 in (borders.dtype, x.dtype) else DType.i64
    wide = low.reshape(low.cast(x, dtype), (*x.shape, 1))
    rows = low.cast(borders, dtype)
    if len(rows.shape) > 1:
        rows = low.reshape(rows, (*rows.shape[:-1], 1, rows.shape[-1]))
    below = low.compare(rows, wide, kind="le" if right else "lt")
    count = low.reduce_sum(low.cast(below, DType.i32), axes=(len(below.shape) - 1,), keepdims=0)
    return low.cast(count, low.dtype)


@aten("bucketize")
def bucketize(
    low: Lowering, x: Any, borders: Value, *, out_int32: bool = False, right: bool = False
) -> Value:
    value = x if isinstance(x, Value) else low.constant(np.asarray(x, borders.dtype.numpy))
    return _places(low, borders, value, right)


@aten("searchsorted")
def searchsorted(
    low: Lowering,
    borders: Value,
    x: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Value | None = None,
) -> Value:
    if sorter is not None:
        raise OperatorError("searching in numbers that are sorted by others")
    value = x if isinstance(x, Value) else low.constant(np.asarray(x, borders.dtype.numpy))
    return _places(low, borders, value, right or side == "right")
