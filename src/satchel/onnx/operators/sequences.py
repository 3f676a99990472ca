"""Lists of tensors, which exist only at export: what is in them goes on as single values."""

from __future__ import annotations

from typing import Any

import numpy as np

from satchel.graph.ir import Value
from satchel.onnx.operators.registry import Call, known_array, onnx_operator
from satchel.torch.lowering import Lowering, axis_of
from satchel.torch.operator_error import OperatorError

Values = list[Value]


def _place(position: Value | None, length: int, usual: int) -> int:
    """A place in a list, counted from its end where it is negative."""
    if position is None:
        return usual
    place = int(known_array(position, "a place in a sequence").reshape(-1)[0])
    place += length if place < 0 else 0
    if not 0 <= place <= length:
        raise OperatorError(f"the place {place} of a sequence of {length}")
    return place


@onnx_operator("SequenceEmpty", "SequenceConstruct")
def construct(low: Lowering, call: Call, *values: Value) -> list[Values]:
    call.get("dtype")
    return [list(values)]


@onnx_operator("SequenceInsert")
def insert(
    low: Lowering, call: Call, sequence: Values, value: Value, position: Value | None = None
) -> list[Values]:
    at = _place(position, len(sequence), len(sequence))
    return [[*sequence[:at], value, *sequence[at:]]]


@onnx_operator("SequenceErase")
def erase(
    low: Lowering, call: Call, sequence: Values, position: Value | None = None
) -> list[Values]:
    at = _place(position, len(sequence), len(sequence) - 1)
    return [[*sequence[:at], *sequence[at + 1 :]]]


@onnx_operator("SequenceAt")
def at_place(low: Lowering, call: Call, sequence: Values, position: Value) -> Value:
    return sequence[_place(position, len(sequence), 0)]


@onnx_operator("SequenceLength")
def length_of(low: Lowering, call: Call, sequence: Values) -> Value:
    return low.constant(np.array(len(sequence), np.int64), "length")


@onnx_operator("ConcatFromSequence")
def concatenate(low: Lowering, call: Call, sequence: Values) -> Value:
    new = call.get("new_axis", 0)
    axis = axis_of(call.get("axis"), len(sequence[0].shape) + bool(new))
    if new:
        sequence = [low.reshape(v, (*v.shape[:axis], 1, *v.shape[axis:])) for v in sequence]
    return low.concat(sequence, axis)


@onnx_operator("SplitToSequence")
def split(low: Lowering, call: Call, x: Value, sizes: Value | None = None) -> list[Values]:
    axis = axis_of(call.get("axis", 0), len(x.shape))
    whole = low.known(x.shape[axis], "SplitToSequence")
    keep = call.get("keepdims", 1) or sizes is not None
    given: Any = np.array(1) if sizes is None else known_array(sizes, "sizes")
    if given.ndim == 0:
        given = [min(int(given), whole - at) for at in range(0, whole, int(given))]
    ends = np.cumsum(given)
    parts = [low.slice(x, axis, int(e - s), int(e)) for s, e in zip(given, ends, strict=True)]
    rest = (*x.shape[:axis], *x.shape[axis + 1 :])
    return [parts if keep else [low.reshape(part, rest) for part in parts]]
