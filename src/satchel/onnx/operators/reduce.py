"""Reductions, softmax and where the extremes are."""

from __future__ import annotations

import numpy as np

from satchel.graph.ir import DType, Value
from satchel.onnx.operators.registry import (
    Call,
    known_shape,
    listed_axes,
    onnx_operator,
    product,
)
from satchel.torch.lowering import Lowering, axis_of
from satchel.torch.operators.activation import log_softmax as log_of_softmax
from satchel.torch.operators.reduce import argmax


def _axes(call: Call, x: Value, given: Value | None) -> tuple[int, ...] | None:
    axes = listed_axes(call, given, len(x.shape))
    if axes:
        return axes
    return None if call.get("noop_with_empty_axes", 0) else tuple(range(len(x.shape)))


@onnx_operator(
    *(f"Reduce{name}" for name in "Sum Mean Max Min Prod L1 L2 LogSum LogSumExp SumSquare".split())
)
def reduction(low: Lowering, call: Call, x: Value, axes: Value | None = None) -> Value:
    kind = call.name.removeprefix("Reduce")
    places, keep = _axes(call, x, axes), int(call.get("keepdims", 1))
    dtype = x.dtype
    if dtype == DType.boolean:
        x = low.cast(x, DType.i32)
    if kind == "L1":
        x = low.abs(low.floats(x))
    elif kind in ("L2", "SumSquare"):
        x = low.mul(x, x)
    if places is not None:
        if kind == "LogSumExp":
            x = low.floats(x)
            most = low.reduce_max(x, axes=places, keepdims=1)
            total = low.reduce_sum(low.exp(low.sub(x, most)), axes=places, keepdims=1)
            made = low.add(low.log(total), most)
            kept = tuple(d for i, d in enumerate(made.shape) if keep or i not in places)
            return low.cast(low.reshape(made, kept), dtype)
        op = {"Mean": "mean", "Max": "max", "Min": "min", "Prod": "prod"}.get(kind, "sum")
        if op == "mean":
            x = low.floats(x)
        x = low.emit(f"reduce_{op}", x, axes=places, keepdims=keep)
    elif kind == "LogSumExp":
        return x
    if kind == "L2":
        x = low.sqrt(low.floats(x))
    elif kind == "LogSum":
        x = low.log(low.floats(x))
    return low.cast(x, dtype)


@onnx_operator("ArgMax", "ArgMin")
def extreme_place(low: Lowering, call: Call, x: Value) -> Value:
    low.operator = call.name.lower()
    axis, keep = axis_of(call.get("axis", 0), len(x.shape)), bool(call.get("keepdims", 1))
    if not call.get("select_last_index", 0):
        return argmax(low, x, axis, keep)
    last = low.known(x.shape[axis], call.name) - 1
    place = argmax(low, low.take(x, list(range(last, -1, -1)), axis), axis, keep)
    return low.sub(low.number(last, place.dtype), place)


def _last_axes(low: Lowering, call: Call, x: Value) -> tuple[Value, int]:
    """x and the axis to go along; older versions join all axes from the one that is named."""
    axis = axis_of(call.get("axis", 1 if call.version < 13 else -1), len(x.shape))
    if call.version >= 13 or axis == len(x.shape) - 1:
        return x, axis
    sizes = known_shape(low, x, call.name)
    return low.reshape(x, (product(sizes[:axis]), product(sizes[axis:]))), 1


@onnx_operator("Softmax")
def softmax(low: Lowering, call: Call, x: Value) -> Value:
    flat, axis = _last_axes(low, call, x)
    return low.reshape(low.emit("softmax", flat, axis=axis), x.shape)


@onnx_operator("LogSoftmax")
def log_softmax(low: Lowering, call: Call, x: Value) -> Value:
    flat, axis = _last_axes(low, call, x)
    return low.reshape(log_of_softmax(low, flat, axis), x.shape)


@onnx_operator("Hardmax")
def hardmax(low: Lowering, call: Call, x: Value) -> Value:
    flat, axis = _last_axes(low, call, x)
    place = low.argmax(flat, axis=axis, keepdims=1)
    count = low.known(flat.shape[axis], "Hardmax")
    along = [-1 if i == axis else 1 for i in range(len(flat.shape))]
    entries = np.arange(count, dtype=np.int32).reshape(along)
    hit = low.compare(place, low.constant(entries, "entries"), kind="eq")
    return low.reshape(low.floats(hit), x.shape)
