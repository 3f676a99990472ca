"""Everything that puts numbers to places that are named by others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from satchel.graph.ir import Dim, DType, Sym, Value
from satchel.graph.ops.elementwise import broadcast
from satchel.torch.lowering import Lowering, Number, axis_of, product_of
from satchel.torch.operators.choose import chosen_columns
from satchel.torch.operators.compare import where
from satchel.torch.operators.elementwise import add
from satchel.torch.operators.index import flat_places, from_the_front, size_of, to_front
from satchel.torch.operators.registry import OperatorError, aten
from satchel.torch.operators.shape import slice_scatter
from satchel.torch.operators.window import strided_places, window_places

REDUCTIONS = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min", "mean": "add"}
REDUCTIONS |= {"add": "add", "multiply": "mul"}  # scatter's own names
NEUTRAL = {"add": 0.0, "mul": 1.0, "max": -np.inf, "min": np.inf}


def _put(low: Lowering, x: Value, axis: int, numbers: Value, source: Value, kind: str) -> Value:
    """x with the source's elements at numbers, which have its shape."""
    dtype = DType.i32 if low.dtype == DType.boolean else low.dtype
    places = from_the_front(low, low.index(numbers), x.shape[axis])
    base, added = low.cast(x, dtype), low.cast(source, dtype)
    return low.cast(low.scatter(base, places, added, axis=axis, kind=kind), low.dtype)


def _cut(low: Lowering, source: Value, numbers: Value) -> Value:
    """As much of the source as there are numbers."""
    for axis, count in enumerate(numbers.shape):
        if source.shape[axis] != count:
            source = low.slice(source, axis, 0, low.known(count, "scatter"))
    return source


def _filled_like(low: Lowering, numbers: Value, number: Number) -> Value:
    dtype = DType.i32 if low.dtype == DType.boolean else low.dtype
    one = low.constant(np.asarray(number).astype(dtype.numpy))
    return low.expand(one, numbers.shape, numbers)


def _neutral(low: Lowering, kind: str) -> Number:
    if low.dtype == DType.f32 or kind in ("add", "mul"):
        return NEUTRAL[kind]
    if low.dtype == DType.boolean:
        return int(kind == "min")
    limits = np.iinfo(low.dtype.numpy)
    return int(limits.min if kind == "max" else limits.max)


@aten("scatter", "scatter_add", "scatter_reduce")
def scatter(
    low: Lowering,
    x: Value,
    dim: int,
    numbers: Value,
    source: Value | Number,
    reduce: str | None = None,
    *,
    include_self: bool = True,
) -> Value:
    if not x.shape:  # one number, as a row of one
        one, places = (low.reshape(v, (1,)) for v in (x, numbers))
        put = low.reshape(source, (1,)) if isinstance(source, Value) else source
        made = scatter(low, one, 0, places, put, reduce, include_self=include_self)
        return low.reshape(made, ())
    axis = axis_of(dim, len(x.shape))
    added = _cut(low, source, numbers) if isinstance(source, Value) else None
    if added is None:
        assert not isinstance(source, Value)
        added = _filled_like(low, numbers, source)
    if low.operator == "scatter_add":
        reduce = "sum"
    if reduce is None:
        return _put(low, x, axis, numbers, added, "set")
    kind = REDUCTIONS[reduce]
    if not include_self:
        neutral = _filled_like(low, numbers, _neutral(low, kind))
        x = _put(low, x, axis, numbers, neutral, "set")
    total = _put(low, x, axis, numbers, added, kind)
    if reduce != "mean":
        return total
    ones = _filled_like(low, x, 1)
    if not include_self:
        ones = _put(low, ones, axis, numbers, _filled_like(low, numbers, 0), "set")
    count = _put(low, ones, axis, numbers, _filled_like(low, numbers, 1), "add")
    count = low.maximum(count, low.number(1, low.dtype))
    if low.dtype == DType.f32:
        return low.div(total, count)
    return low.integer(total, count, kind="floor_div")


def _along(low: Lowering, numbers: Value, source: Value, axis: int) -> Value:
    """Numbers of entries, repeated for all that an entry has."""
    count = numbers.shape[0] if numbers.shape else 1
    shape = tuple(count if i == axis else 1 for i in range(len(source.shape)))
    return low.expand(low.reshape(numbers, shape), source.shape, source)


@aten("index_add", "index_copy")
def index_add(
    low: Lowering, x: Value, dim: int, numbers: Value, source: Value, *, alpha: Number = 1
) -> Value:
    if alpha != 1:
        source = low.mul(source, low.number(alpha, source.dtype))
    if not x.shape:  # one number, as a row of one
        one, added = (low.reshape(v, (1,)) for v in (x, source))
        made = index_add(low, one, 0, low.reshape(numbers, (1,)), added)
        return low.reshape(made, ())
    axis = axis_of(dim, len(x.shape))
    kind = "add" if low.operator == "index_add" else "set"
    return _put(low, x, axis, _along(low, low.index(numbers), source, axis), source, kind)


@aten("index_put", "_unsafe_index_put")
def index_put(
    low: Lowering,
    x: Value,
    numbers: Sequence[Value | None],
    source: Value,
    accumulate: bool = False,
) -> Value:
    used = [(axis, n) for axis, n in enumerate(numbers) if n is not None]
    if len(used) == 1 and used[0][1].dtype == DType.boolean:
        axis, mask = used[0]
        behind = len(x.shape) - axis - len(mask.shape)
        if len(source.shape) <= behind or all(d == 1 for d in source.shape[: -behind or None]):
            return _put_by_mask(low, x, axis, mask, source, accumulate)
        size = next((d for d in source.shape if isinstance(d, Sym)), None)
        if size is None:
            return _put_in_order(low, x, axis, mask, source, accumulate)
        columns = chosen_columns(low, mask, size)
        used = [(axis + i, column) for i, column in enumerate(columns)]
    if any(n.dtype == DType.boolean for _, n in used):
        raise OperatorError("several indices of which some are masks")
    if len(used) == 1 and len(used[0][1].shape) == 1:
        return _put_rows(low, x, *used[0], source, accumulate)
    axes = [axis for axis, _ in used]
    places, shape = flat_places(low, x, used)
    sizes = x.shape
    rest = [i for i in range(len(sizes)) if i not in axes]
    order = [*axes, *rest]
    entries = product_of([sizes[i] for i in axes])
    each = product_of([sizes[i] for i in rest])
    count = product_of(shape)
    # Where the numbers' dimensions are in x[numbers]: at the first of them, if they are together.
    first = axes[0] if axes == list(range(axes[0], axes[0] + len(axes))) else 0
    picked: list[Dim] = [sizes[i] for i in rest]
    picked[first:first] = shape
    whole = low.expand(source, tuple(picked), places)
    whole = low.transpose(whole, to_front(len(picked), first, len(shape)))
    flat = low.reshape(low.transpose(x, order), (entries, each))
    repeated = low.expand(low.reshape(places, (count, 1)), (count, each), places)
    added = low.reshape(whole, (count, each))
    made = _put(low, flat, 0, repeated, added, "add" if accumulate else "set")
    made = low.reshape(made, tuple(sizes[i] for i in order))
    return low.transpose(made, [order.index(i) for i in range(len(order))])


def _put_rows(
    low: Lowering, x: Value, axis: int, numbers: Value, source: Value, accumulate: bool
) -> Value:
    """One row of numbers along one axis; sizes may be symbolic."""
    shape = (*x.shape[:axis], *numbers.shape, *x.shape[axis + 1 :])
    whole = low.expand(source, shape, numbers)
    places = _along(low, low.index(numbers), whole, axis)
    return _put(low, x, axis, places, whole, "add" if accumulate else "set")


def _put_by_mask(
    low: Lowering, x: Value, axis: int, mask: Value, source: Value, accumulate: bool
) -> Value:
    """x[mask] = number, or the same numbers for all: their count need not be known."""
    behind = len(x.shape) - axis - len(mask.shape)
    wide = low.reshape(mask, (*mask.shape, *(1 for _ in range(behind))))
    number = low.reshape(source, source.shape[max(0, len(source.shape) - behind) :])
    if accumulate:
        number = add(low, x, low.cast(number, x.dtype))
    return where(low, wide, number, x)


def _put_in_order(
    low: Lowering, x: Value, axis: int, mask: Value, source: Value, accumulate: bool
) -> Value:
    """x[mask] = numbers, as many as the mask must choose: one after the other."""
    if axis > 0 or len(source.shape) != 1 + len(x.shape) - len(mask.shape):
        raise OperatorError("numbers for what a mask chooses, of such a shape")
    rest = x.shape[len(mask.shape) :]
    wide = low.reshape(mask, (*mask.shape, *(1 for _ in rest)))
    whole = low.expand(source, (source.shape[0], *rest))
    if not accumulate:
        return masked_scatter(low, x, wide, whole)
    zeros = low.expand(low.number(0, x.dtype), x.shape, x)
    return add(low, x, masked_scatter(low, zeros, wide, whole))


@aten("masked_scatter")
def masked_scatter(low: Lowering, x: Value, mask: Value, source: Value) -> Value:
    """The numbers of the source, one after the other, where the mask holds."""
    shape = broadcast(x.shape, mask.shape, "masked_scatter")
    x, whole = low.expand(x, shape, mask), low.expand(mask, shape, x)
    size, count = size_of(low, x), size_of(low, source)
    flat = low.cast(low.reshape(whole, (size,)), DType.i32)
    so_far = low.cumulate(flat, axis=0, kind="sum")
    places = low.sub(so_far, low.number(1, DType.i32))
    places = low.maximum(places, low.number(0, DType.i32))
    places = low.minimum(places, low.number(count - 1, DType.i32))
    taken = low.emit("take", low.reshape(source, (count,)), places, axis=0)
    return where(low, whole, low.reshape(taken, x.shape), x)


@aten("select_scatter")
def select_scatter(low: Lowering, x: Value, source: Value, dim: int, number: int) -> Value:
    axis = axis_of(dim, len(x.shape))
    one = low.reshape(source, (*x.shape[:axis], 1, *x.shape[axis + 1 :]))
    size = x.shape[axis]
    if isinstance(size, Sym):
        return slice_scatter(low, x, one, axis, number, None if number == -1 else number + 1)
    place = axis_of(number, size)
    parts = [low.slice(x, axis, 0, place)] if place else []
    parts += [low.cast(one, x.dtype)]
    parts += [low.slice(x, axis, place + 1, size)] if place + 1 < size else []
    return low.concat(parts, axis)


def _put_at(low: Lowering, x: Value, places: NDArray[np.int64], source: Value) -> Value:
    """x with the source at known places among all of its entries."""
    count = size_of(low, x)
    order = np.arange(count)
    order[places.reshape(-1)] = count + np.arange(places.size)
    parts = [low.reshape(x, (count,)), low.reshape(low.cast(source, x.dtype), (places.size,))]
    return low.reshape(low.take(low.concat(parts, 0), order, 0), x.shape)


@aten("diagonal_scatter")
def diagonal_scatter(
    low: Lowering, x: Value, source: Value, offset: int = 0, first: int = 0, second: int = 1
) -> Value:
    places = np.arange(size_of(low, x)).reshape(x.shape)
    return _put_at(low, x, places.diagonal(offset, first, second), source)


@aten("as_strided_scatter")
def as_strided_scatter(
    low: Lowering,
    x: Value,
    source: Value,
    size: Sequence[int],
    stride: Sequence[int],
    offset: int | None = None,
) -> Value:
    return _put_at(low, x, strided_places(low, x, size, stride, offset), source)


@aten("col2im")
def col2im(
    low: Lowering,
    x: Value,
    size: Sequence[int],
    kernel: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Value:
    """Windows [N, C * kernel, windows] added up where they lie in an image."""
    shape = low.shape
    height, width = (low.known(d, "col2im") for d in shape[-2:])
    places = window_places(size, kernel, dilation, padding, stride).reshape(-1)
    inside = np.flatnonzero(places >= 0)
    outer = product_of(shape[:-2])
    flat = low.take(low.reshape(x, (outer, places.size)), inside, 1)
    numbers = low.constant(places[inside].astype(np.int32)[None], "places")
    zeros = low.expand(low.number(0, low.dtype), (outer, height * width), flat)
    added = low.scatter(zeros, low.expand(numbers, flat.shape, flat), flat, axis=1, kind="add")
    return low.reshape(added, shape)
