"""Operators that move numbers, and those that make them of sizes."""

from __future__ import annotations

from typing import Any

import numpy as np

from satchel.graph.ir import Value
from satchel.onnx.operators.registry import (
    Call,
    known_array,
    known_shape,
    listed_axes,
    numbers_of,
    onnx_operator,
    product,
)
from satchel.onnx.types import array_of, dtype_of
from satchel.torch.lowering import Lowering, axis_of
from satchel.torch.operator_error import OperatorError


@onnx_operator("Reshape")
def reshape(low: Lowering, call: Call, x: Value, shape: Value | None = None) -> Value:
    wanted = call.get("shape") if call.version < 5 else numbers_of(shape, "a shape")
    if not call.get("allowzero", 0):
        wanted = [x.shape[i] if d == 0 else d for i, d in enumerate(wanted)]
    if -1 in wanted:
        rest = product([d for d in wanted if d != -1])
        whole = product(known_shape(low, x, "a size of -1"))
        wanted = [whole // rest if d == -1 else d for d in wanted]
    return low.reshape(x, tuple(wanted))


@onnx_operator("Flatten")
def flatten(low: Lowering, call: Call, x: Value) -> Value:
    axis = call.get("axis", 1)
    axis = axis + len(x.shape) if axis < 0 else axis
    sizes = known_shape(low, x, "Flatten")
    return low.reshape(x, (product(sizes[:axis]), product(sizes[axis:])))


@onnx_operator("Squeeze")
def squeeze(low: Lowering, call: Call, x: Value, axes: Value | None = None) -> Value:
    found = listed_axes(call, axes, len(x.shape))
    if found is None:
        found = tuple(i for i, d in enumerate(x.shape) if d == 1)
    return low.reshape(x, tuple(d for i, d in enumerate(x.shape) if i not in found))


@onnx_operator("Unsqueeze")
def unsqueeze(low: Lowering, call: Call, x: Value, axes: Value | None = None) -> Value:
    listed = call.get("axes") if call.get("axes") is not None else numbers_of(axes, "axes")
    rank = len(x.shape) + len(listed)
    places = {axis_of(int(a), rank) for a in listed}
    sizes = iter(x.shape)
    return low.reshape(x, tuple(1 if i in places else next(sizes) for i in range(rank)))


@onnx_operator("Transpose")
def transpose(low: Lowering, call: Call, x: Value) -> Value:
    return low.transpose(x, call.get("perm") or list(range(len(x.shape)))[::-1])


@onnx_operator("Concat")
def concat(low: Lowering, call: Call, *parts: Value | None) -> Value:
    given = [part for part in parts if part is not None]
    return low.concat(given, axis_of(call.get("axis", 1), len(given[0].shape)))


@onnx_operator("Split")
def split(low: Lowering, call: Call, x: Value, sizes: Value | None = None) -> list[Value | None]:
    axis = axis_of(call.get("axis", 0), len(x.shape))
    whole = low.known(x.shape[axis], "Split")
    given = call.get("split") or (numbers_of(sizes, "sizes") if sizes is not None else None)
    if given is None:
        count = call.get("num_outputs") or call.outputs
        each = -(-whole // count)
        given = [min(each, whole - at) for at in range(0, whole, each)]
    ends = np.cumsum(given)
    return [
        low.slice(x, axis, int(e - s), int(e)) if s else None  # nothing holds no numbers
        for s, e in zip(given, ends, strict=True)
    ]


@onnx_operator("Slice")
def slice_(low: Lowering, call: Call, x: Value, *given: Value | None) -> Value | None:
    if call.version < 10:
        starts, ends, axes, steps = call.get("starts"), call.get("ends"), call.get("axes"), None
    else:
        lists = [None if v is None else numbers_of(v, "a slice") for v in (*given, None, None)[:4]]
        starts, ends, axes, steps = lists
    axes = list(range(len(starts))) if axes is None else axes
    for axis, start, end, step in zip(axes, starts, ends, steps or [1] * len(axes), strict=True):
        place = axis_of(axis, len(x.shape))
        size = x.shape[place]
        if start == 0 and step == 1 and end >= 1 << 31:
            continue
        chosen = range(*slice(start, end, step).indices(low.known(size, "Slice")))
        if not chosen:
            return None  # nothing holds no numbers
        if step == 1:
            x = low.slice(x, place, chosen.start, chosen.stop)
        else:
            x = low.take(x, list(chosen), place)
    return x


@onnx_operator("Expand")
def expand(low: Lowering, call: Call, x: Value, shape: Value) -> Value:
    wanted = np.broadcast_shapes(known_shape(low, x, "Expand"), numbers_of(shape, "a shape"))
    return low.expand(x, tuple(int(d) for d in wanted))


@onnx_operator("Tile")
def tile(low: Lowering, call: Call, x: Value, repeats: Value) -> Value:
    for axis, count in enumerate(numbers_of(repeats, "repeats")):
        if count != 1:
            x = low.concat([x] * count, axis)
    return x


@onnx_operator("Pad")
def pad(
    low: Lowering,
    call: Call,
    x: Value,
    pads: Value | None = None,
    fill: Value | None = None,
    axes: Value | None = None,
) -> Value:
    rank = len(x.shape)
    widths = call.get("pads") if pads is None else numbers_of(pads, "a padding")
    number: Any = call.get("value", 0.0)
    if fill is not None:
        number = known_array(fill, "a padding").reshape(-1)[0].item()
    places = [axis_of(a, rank) for a in numbers_of(axes, "axes")] if axes is not None else None
    places = list(range(rank)) if places is None else places
    before, after = [0] * rank, [0] * rank
    for i, place in enumerate(places):
        before[place], after[place] = widths[i], widths[len(places) + i]
    mode = call.get("mode", "constant")
    if mode == "constant":
        return low.pad(x, before, after, number)
    for axis, (first, last) in enumerate(zip(before, after, strict=True)):
        if first or last:
            size = low.known(x.shape[axis], "Pad")
            kept = np.arange(size)[max(0, -first) : size - max(0, -last)]
            around = (max(0, first), max(0, last))
            numbers = np.pad(kept, around, mode=mode)
            x = low.take(x, numbers, axis)
    return x


@onnx_operator("Shape")
def shape_of(low: Lowering, call: Call, x: Value) -> Value | None:
    sizes = known_shape(low, x, "Shape")[call.get("start", 0) : call.get("end")]
    return low.constant(np.asarray(sizes, np.int64), "shape") if sizes else None


@onnx_operator("Size")
def size_of(low: Lowering, call: Call, x: Value) -> Value:
    return low.constant(np.asarray(product(known_shape(low, x, "Size")), np.int64), "size")


@onnx_operator("Constant")
def constant(low: Lowering, call: Call) -> Value | None:
    for name, value in call.attributes.items():
        if name == "value":
            array = array_of(value)
        elif name.startswith("value_float"):
            array = np.asarray(value, np.float32)
        elif name.startswith("value_int"):
            array = np.asarray(value, np.int64)
        else:
            raise OperatorError(f"a constant of the kind {name}")
        return low.constant(array, "constant") if array.size else None
    raise OperatorError("a constant without a value")


@onnx_operator("ConstantOfShape")
def constant_of_shape(low: Lowering, call: Call, shape: Value | None) -> Value | None:
    tensor = call.get("value")
    one = np.zeros(1, np.float32) if tensor is None else array_of(tensor)
    sizes = tuple(numbers_of(shape, "a shape"))
    if 0 in sizes:
        return None
    return low.constant(np.full(sizes, one.reshape(-1)[0]), "constant")


@onnx_operator("Range")
def range_(low: Lowering, call: Call, start: Value, limit: Value, delta: Value) -> Value | None:
    ends = [known_array(v, "a range").reshape(-1)[0] for v in (start, limit, delta)]
    made = np.arange(*ends).astype(ends[0].dtype)
    return low.constant(made, "range") if made.size else None


@onnx_operator("EyeLike")
def eye_like(low: Lowering, call: Call, x: Value) -> Value:
    rows, columns = known_shape(low, x, "EyeLike")
    dtype = dtype_of(call.get("dtype")) if call.get("dtype") else x.dtype
    return low.constant(np.eye(rows, columns, call.get("k", 0), dtype=dtype.numpy), "eye")


@onnx_operator("DepthToSpace")
def depth_to_space(low: Lowering, call: Call, x: Value) -> Value:
    batch, channels, height, width = known_shape(low, x, "DepthToSpace")
    size = call.get("blocksize")
    depth = channels // size**2
    if call.get("mode", "DCR") == "DCR":
        parts = low.reshape(x, (batch, size, size, depth, height, width))
        parts = low.transpose(parts, (0, 3, 4, 1, 5, 2))
    else:
        parts = low.reshape(x, (batch, depth, size, size, height, width))
        parts = low.transpose(parts, (0, 1, 4, 2, 5, 3))
    return low.reshape(parts, (batch, depth, height * size, width * size))


@onnx_operator("SpaceToDepth")
def space_to_depth(low: Lowering, call: Call, x: Value) -> Value:
    batch, channels, height, width = known_shape(low, x, "SpaceToDepth")
    size = call.get("blocksize")
    parts = low.reshape(x, (batch, channels, height // size, size, width // size, size))
    channels_first = call.get("mode", "DCR") == "CRD"
    parts = low.transpose(parts, (0, 1, 3, 5, 2, 4) if channels_first else (0, 3, 5, 1, 2, 4))
    return low.reshape(parts, (batch, channels * size**2, height // size, width // size))


@onnx_operator("Trilu")
def trilu(low: Lowering, call: Call, x: Value, k: Value | None = None) -> Value:
    rows, columns = known_shape(low, x, "Trilu")[-2:]
    diagonal = int(known_array(k, "a diagonal").reshape(-1)[0]) if k is not None else 0
    keep = np.triu if call.get("upper", 1) else np.tril
    mask = keep(np.ones((rows, columns), bool), diagonal)
    zero = low.number(0, x.dtype)
    return low.where(low.constant(mask, "triangle"), x, zero)
