"""Operators that pick and put by number, and that sort."""

from __future__ import annotations

import numpy as np

from satchel.graph.ir import DType, Sym, Value
from satchel.onnx.operators.registry import (
    Call,
    known_array,
    known_shape,
    onnx_operator,
    product,
)
from satchel.torch.lowering import Lowering, axis_of
from satchel.torch.operator_error import OperatorError
from satchel.torch.operators.choose import chosen_columns, chosen_places
from satchel.torch.operators.index import flat_places, from_the_front, index_by
from satchel.torch.operators.sort import topk


@onnx_operator("Gather")
def gather(low: Lowering, call: Call, x: Value, numbers: Value) -> Value:
    axis = axis_of(call.get("axis", 0), len(x.shape))
    is_table = x.constant is not None and numbers.constant is None and x.dtype == DType.f32
    if is_table and axis == 0 and len(x.shape) == 2:
        size = low.known(x.shape[0], "Gather")
        places = from_the_front(low, low.index(numbers), size)
        return low.emit("embedding", places, x)
    return index_by(low, x, numbers, axis)


def _places(low: Lowering, x: Value, numbers: Value, axis: int) -> Value:
    return from_the_front(low, low.index(numbers), low.known(x.shape[axis], "indexing"))


@onnx_operator("GatherElements")
def gather_elements(low: Lowering, call: Call, x: Value, numbers: Value) -> Value:
    axis = axis_of(call.get("axis", 0), len(x.shape))
    return low.gather(x, _places(low, x, numbers, axis), axis=axis)


@onnx_operator("GatherND")
def gather_nd(low: Lowering, call: Call, x: Value, numbers: Value) -> Value:
    batch = call.get("batch_dims", 0)
    sizes, shape = known_shape(low, x, "GatherND"), known_shape(low, numbers, "GatherND")
    used, lead = shape[-1], shape[:-1]
    columns = [low.reshape(low.slice(numbers, len(shape) - 1, i, i + 1), lead) for i in range(used)]
    axes = list(range(batch, batch + used))
    for axis in range(batch - 1, -1, -1):  # which of the batch an entry is of
        along = [-1 if i == axis else 1 for i in range(len(lead))]
        own = np.arange(sizes[axis], dtype=np.int64).reshape(along)
        columns.insert(0, low.constant(np.broadcast_to(own, lead).copy(), "batch"))
        axes.insert(0, axis)
    places, _ = flat_places(low, x, list(zip(axes, columns, strict=True)))
    rest = sizes[len(axes) :]
    flat = low.reshape(x, (product(sizes[: len(axes)]), *rest))
    return low.reshape(low.emit("take", flat, places, axis=0), (*lead, *rest))


_KINDS = {"none": "set", "add": "add", "mul": "mul", "max": "max", "min": "min"}


def _put(low: Lowering, x: Value, places: Value, source: Value, axis: int, reduction: str) -> Value:
    dtype = DType.i32 if x.dtype == DType.boolean else x.dtype
    base, added = low.cast(x, dtype), low.cast(source, dtype)
    kind = _KINDS[reduction]
    return low.cast(low.scatter(base, places, added, axis=axis, kind=kind), x.dtype)


@onnx_operator("ScatterElements", "Scatter")
def scatter_elements(low: Lowering, call: Call, x: Value, numbers: Value, source: Value) -> Value:
    axis = axis_of(call.get("axis", 0), len(x.shape))
    places = _places(low, x, numbers, axis)
    return _put(low, x, places, source, axis, call.get("reduction", "none"))


@onnx_operator("ScatterND")
def scatter_nd(low: Lowering, call: Call, x: Value, numbers: Value, source: Value) -> Value:
    sizes, shape = known_shape(low, x, "ScatterND"), known_shape(low, numbers, "ScatterND")
    used, lead = shape[-1], shape[:-1]
    columns = [low.reshape(low.slice(numbers, len(shape) - 1, i, i + 1), lead) for i in range(used)]
    places, _ = flat_places(low, x, list(enumerate(columns)))
    entries, each, count = product(sizes[:used]), product(sizes[used:]), product(lead)
    flat = low.reshape(x, (entries, each))
    repeated = low.expand(low.reshape(places, (count, 1)), (count, each))
    added = low.reshape(source, (count, each))
    made = _put(low, flat, repeated, added, 0, call.get("reduction", "none"))
    return low.reshape(made, sizes)


@onnx_operator("OneHot")
def one_hot(low: Lowering, call: Call, numbers: Value, depth: Value, values: Value) -> Value:
    count = int(known_array(depth, "a depth").reshape(-1)[0])
    axis = axis_of(call.get("axis", -1), len(numbers.shape) + 1)
    places = low.cast(numbers, DType.i64)
    below = low.compare(places, low.number(0, DType.i64), kind="lt")
    places = low.where(below, low.add(places, low.number(count, DType.i64)), places)
    sizes = known_shape(low, numbers, "OneHot")
    wide = low.reshape(places, (*sizes[:axis], 1, *sizes[axis:]))
    entries = np.arange(count, dtype=np.int64).reshape([-1] + [1] * (len(sizes) - axis))
    hit = low.compare(wide, low.constant(entries, "entries"), kind="eq")
    off, on = (low.reshape(low.slice(values, 0, i, i + 1), ()) for i in range(2))
    shape = (*sizes[:axis], count, *sizes[axis:])
    return low.where(hit, low.expand(on, shape), low.expand(off, shape))


@onnx_operator("TopK")
def top(low: Lowering, call: Call, x: Value, k: Value | None = None) -> list[Value]:
    count = call.get("k") if k is None else int(known_array(k, "a count").reshape(-1)[0])
    return topk(low, x, count, call.get("axis", -1), bool(call.get("largest", 1)))


@onnx_operator("CumSum", "CumProd")
def cumulate(low: Lowering, call: Call, x: Value, axis: Value) -> Value:
    place = axis_of(int(known_array(axis, "an axis").reshape(-1)[0]), len(x.shape))
    size, is_sum = low.known(x.shape[place], call.name), call.name == "CumSum"
    backwards = call.get("reverse", 0)
    flipped = low.take(x, list(range(size))[::-1], place) if backwards else x
    if call.get("exclusive", 0):  # each without itself: one step later, from what changes nothing
        ends = [int(axis == place) for axis in range(len(x.shape))]
        start = low.pad(flipped, ends, [0] * len(ends), 0 if is_sum else 1)
        flipped = low.slice(start, place, 0, size)
    made = low.cumulate(flipped, axis=place, kind="sum" if is_sum else "prod")
    return low.take(made, list(range(size))[::-1], place) if backwards else made


@onnx_operator("NonZero")
def non_zero(low: Lowering, call: Call, x: Value) -> Value:
    """The places of what is not 0, a row for each dimension; how many, only a run tells."""
    if x.constant is not None:
        return low.constant(np.array(np.nonzero(x.constant), np.int64), "places")
    size = Sym(f"chosen_{len(low.chosen)}", product(known_shape(low, x, "NonZero")))
    columns = chosen_columns(low, x, size)
    rows = [low.reshape(low.cast(c, DType.i64), (1, *c.shape)) for c in columns]
    return low.concat(rows, 0)


@onnx_operator("Compress")
def compress(low: Lowering, call: Call, x: Value, mask: Value) -> Value:
    """The entries of an axis, or of all, for which a mask holds."""
    axis = call.get("axis")
    if axis is None:
        x = low.reshape(x, (product(known_shape(low, x, "Compress")),))
    place = axis_of(axis or 0, len(x.shape))
    (count,) = known_shape(low, mask, "Compress")
    places = chosen_places(low, mask, Sym(f"chosen_{len(low.chosen)}", count))
    return low.emit("take", x, places, axis=place)


@onnx_operator("Unique")
def counted(low: Lowering, call: Call, *_inputs: Value | None) -> Value:
    raise OperatorError("as many results as the numbers say")
