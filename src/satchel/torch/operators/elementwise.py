"""Arithmetic on each element."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from satchel.graph.ir import DType, Value
from satchel.torch.lowering import Lowering, Number
from satchel.torch.operators.registry import aten

Operand = Value | Number


def _scaled(low: Lowering, x: Operand, factor: Number) -> Operand:
    if factor == 1:
        return x
    if not isinstance(x, Value):
        return x * factor
    if x.dtype == DType.f32:
        return low.affine(x, scale=float(factor))
    return _combine(low, "mul", x, factor)


def _combine(low: Lowering, op: str, a: Operand, b: Operand) -> Value:
    """With a number, ``x + n`` and its like are one cheap node that needs no constant."""
    dtype = low.dtype
    if dtype == DType.boolean:
        dtype = DType.i32
    if dtype == DType.f32 and isinstance(a, Value) and isinstance(b, (int, float)):
        x, n = low.floats(a), float(b)
        if op == "add" and math.isfinite(n):
            return low.affine(x, shift=n)
        if op == "sub" and math.isfinite(n):
            return low.affine(x, shift=-n)
        if op == "mul" and math.isfinite(n):
            return low.affine(x, scale=n)
        if op == "div" and n and math.isfinite(1 / n):
            return low.affine(x, scale=1 / n)
    result = low.emit(op, low.operand(a, dtype), low.operand(b, dtype))
    return low.cast(result, low.dtype)


@aten("add")
def add(low: Lowering, a: Operand, b: Operand, *, alpha: Number = 1) -> Value:
    if not isinstance(a, Value):
        a, b = _scaled(low, b, alpha), a
        return _combine(low, "add", a, b)
    return _combine(low, "add", a, _scaled(low, b, alpha))


@aten("lerp")
def lerp(low: Lowering, start: Value, end: Value, weight: Operand) -> Value:
    return _combine(low, "add", start, mul(low, low.sub(end, start), weight))


@aten("sub")
def sub(low: Lowering, a: Operand, b: Operand, *, alpha: Number = 1) -> Value:
    return _combine(low, "sub", a, _scaled(low, b, alpha))


@aten("rsub")
def rsub(low: Lowering, a: Operand, b: Operand, alpha: Number = 1) -> Value:
    return _combine(low, "sub", b, _scaled(low, a, alpha))


@aten("mul")
def mul(low: Lowering, a: Operand, b: Operand) -> Value:
    return _combine(low, "mul", *((a, b) if isinstance(a, Value) else (b, a)))


def _both_whole(a: Operand, b: Operand) -> bool:
    return all(x.dtype != DType.f32 if isinstance(x, Value) else isinstance(x, int) for x in (a, b))


def whole_function(low: Lowering, kind: str, a: Operand, b: Operand) -> Value:
    """A function that only whole numbers have, in the result's own width."""
    return low.integer(low.operand(a, low.dtype), low.operand(b, low.dtype), kind=kind)


@aten("div", "true_divide")
def div(low: Lowering, a: Operand, b: Operand, *, rounding_mode: str | None = None) -> Value:
    if rounding_mode is None:
        return _combine(low, "div", a, b)
    if _both_whole(a, b):
        return whole_function(low, f"{rounding_mode}_div", a, b)
    if rounding_mode == "trunc":
        return low.trunc(_combine(low, "div", a, b))
    # As torch has it: the quotient of what a remainder leaves is all but whole.
    x, y = low.operand(a, DType.f32), low.operand(b, DType.f32)
    rest = low.fmod(x, y)
    quotient = low.div(low.sub(x, rest), y)
    zero = low.number(0.0)
    opposite = low.compare(low.mul(sign_of(low, rest), sign_of(low, y)), zero, kind="lt")
    quotient = low.sub(quotient, low.cast(opposite, DType.f32))
    whole = low.round(quotient)
    plain = low.div(x, y)
    return low.where(low.compare(y, zero, kind="eq"), plain, whole)


@aten("floor_divide")
def floor_divide(low: Lowering, a: Operand, b: Operand) -> Value:
    return div(low, a, b, rounding_mode="floor")


@aten("remainder", "fmod")
def remainder(low: Lowering, a: Operand, b: Operand) -> Value:
    if _both_whole(a, b):
        return whole_function(low, low.operator, a, b)
    x, y = low.operand(a, DType.f32), low.operand(b, DType.f32)
    rest = low.fmod(x, y)
    if low.operator == "fmod":
        return rest
    zero = low.number(0.0)
    opposite = low.compare(low.mul(sign_of(low, rest), sign_of(low, y)), zero, kind="lt")
    return low.where(opposite, low.add(rest, y), rest)


@aten("maximum")
def maximum(low: Lowering, a: Value, b: Value) -> Value:
    return _combine(low, "maximum", a, b)


@aten("minimum")
def minimum(low: Lowering, a: Value, b: Value) -> Value:
    return _combine(low, "minimum", a, b)


@aten("pow")
def power(low: Lowering, base: Operand, exponent: Operand) -> Value:
    if low.dtype != DType.f32:
        return whole_function(low, "pow", base, exponent)
    if isinstance(base, Value) and not isinstance(exponent, Value):
        x = low.floats(base)
        simple = {0.5: "sqrt", -0.5: "rsqrt", -1.0: "reciprocal"}.get(float(exponent))
        if simple == "reciprocal":
            return low.div(low.number(1.0), x)
        if simple:
            return low.emit(simple, x)
        if exponent in (2, 3, 4):
            square = low.mul(x, x)
            return square if exponent == 2 else low.mul(square, x if exponent == 3 else square)
    return low.emit("pow", low.operand(base, DType.f32), low.operand(exponent, DType.f32))


@aten("clamp", "clamp_min")
def clamp(low: Lowering, x: Value, least: Any = None, most: Any = None) -> Value:
    if isinstance(least, Value) or isinstance(most, Value) or x.dtype != DType.f32:
        if least is not None:
            x = _combine(low, "maximum", x, low.operand(least, low.dtype))
        return x if most is None else _combine(low, "minimum", x, low.operand(most, low.dtype))
    bounds = {"low": least, "high": most}
    given = {k: float(v) for k, v in bounds.items() if v is not None and math.isfinite(v)}
    if len(given) == 2 and given["low"] > given["high"]:  # torch then takes the upper one
        given["low"] = given["high"]
    return low.clamp(x, **given)


@aten("clamp_max")
def clamp_max(low: Lowering, x: Value, most: Any) -> Value:
    return clamp(low, x, None, most)


@aten("neg")
def negate(low: Lowering, x: Value) -> Value:
    if x.dtype == DType.f32:
        return low.neg(x)
    return low.sub(low.number(0, x.dtype), x)


@aten("abs")
def absolute(low: Lowering, x: Value) -> Value:
    if x.dtype == DType.f32:
        return low.abs(x)
    return x if x.dtype == DType.boolean else low.maximum(x, negate(low, x))


def _unary(name: str, op: str) -> None:
    @aten(name)
    def apply(low: Lowering, x: Value) -> Value:
        return low.emit(op, low.floats(x))


for _name in (
    "exp exp2 expm1 log log1p log2 log10 sqrt rsqrt sigmoid tanh erf erfinv "
    "sin cos tan asin acos atan sinh cosh asinh acosh atanh"
).split():
    _unary(_name, _name)


@aten("erfc")
def erfc(low: Lowering, x: Value) -> Value:
    return low.affine(low.erf(low.floats(x)), scale=-1.0, shift=1.0)


@aten("atan2")
def atan2(low: Lowering, a: Value, b: Value) -> Value:
    return low.emit("atan2", low.floats(a), low.floats(b))


@aten("hypot")
def hypot(low: Lowering, a: Value, b: Value) -> Value:
    return low.sqrt(low.add(low.mul(a, a), low.mul(b, b)))


@aten("floor", "round", "trunc", "fix")
def rounded(low: Lowering, x: Value, *, decimals: int = 0) -> Value:
    if x.dtype != DType.f32:
        return x
    if decimals:
        ten = low.number(10.0 ** abs(decimals))
        there, back = ("mul", "div") if decimals > 0 else ("div", "mul")
        return low.emit(back, low.round(low.emit(there, x, ten)), ten)
    return low.emit("trunc" if low.operator == "fix" else low.operator, x)


@aten("ceil")
def ceil(low: Lowering, x: Value) -> Value:
    return low.neg(low.floor(low.neg(x))) if x.dtype == DType.f32 else x


@aten("frac")
def frac(low: Lowering, x: Value) -> Value:
    return low.sub(x, low.trunc(x))


def sign_of(low: Lowering, x: Value) -> Value:
    """1, 0 or -1, in the type of x."""
    zero = low.number(0, x.dtype)
    above = low.cast(low.compare(x, zero, kind="gt"), x.dtype)
    return low.sub(above, low.cast(low.compare(x, zero, kind="lt"), x.dtype))


@aten("sign", "sgn")
def sign(low: Lowering, x: Value) -> Value:
    return x if x.dtype == DType.boolean else sign_of(low, x)


@aten("reciprocal")
def reciprocal(low: Lowering, x: Value) -> Value:
    return low.div(low.number(1.0), low.floats(x))


@aten("isnan")
def isnan(low: Lowering, x: Value) -> Value:
    return low.compare(low.floats(x), low.floats(x), kind="ne")


@aten("isinf")
def isinf(low: Lowering, x: Value) -> Value:
    return low.compare(low.abs(low.floats(x)), low.constant(np.float32(np.inf)), kind="eq")
