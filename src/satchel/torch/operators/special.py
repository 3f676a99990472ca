"""Functions of each element that few modules call, written with those that many do."""

from __future__ import annotations

import math

from satchel.graph.ir import DType, Value
from satchel.torch.lowering import Lowering, Number
from satchel.torch.operators.elementwise import isnan, maximum, minimum
from satchel.torch.operators.registry import aten


@aten("fmax", "fmin")
def other_than_nan(low: Lowering, a: Value, b: Value) -> Value:
    """The greater (or lesser) of two, and the other one where one is not a number."""
    kept = maximum(low, a, b) if low.operator == "fmax" else minimum(low, a, b)
    if low.dtype != DType.f32:
        return kept
    a, b = low.floats(a), low.floats(b)
    return low.where(isnan(low, a), b, low.where(isnan(low, b), a, kept))


@aten("signbit")
def signbit(low: Lowering, x: Value) -> Value:
    """Whether it is below 0, or the 0 that is reached from below."""
    if x.dtype != DType.f32:
        return low.compare(low.cast(x, DType.i64), low.number(0, DType.i64), kind="lt")
    zero, nearly = low.number(0.0), low.div(low.number(1.0), x)
    return low.compare(low.where(low.compare(x, zero, kind="eq"), nearly, x), zero, kind="lt")


@aten("copysign")
def copysign(low: Lowering, a: Value | Number, b: Value | Number) -> Value:
    size = low.abs(low.operand(a, DType.f32))
    return low.where(signbit(low, low.operand(b, DType.f32)), low.neg(size), size)


@aten("angle")
def angle(low: Lowering, x: Value) -> Value:
    """Of real numbers: pi below 0."""
    real = low.floats(x)
    turned = low.compare(real, low.number(0.0), kind="lt")
    of_numbers = low.affine(low.cast(turned, DType.f32), scale=math.pi)
    return low.where(isnan(low, real), real, of_numbers)
