"""Arithmetic on each element."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from satchel.graph.ir import DType, Value
from satchel.torch.lowering import Lowering, Number
from satchel.torch.operators.registry import OperatorError, aten

Operand = Value | Number


def _scaled(low: Lowering, x: Operand, factor: Number) -> Operand:
    if factor == 1:
        return x
    if not isinstance(x, Value):
        return x * factor
    if x.dtype == DType.f32:
        return low.affine(x, scale=float(factor))
    return low.mul(low.cast(x, low.dtype), low.number(factor, low.dtype))


def _combine(low: Lowering, op: str, a: Operand, b: Operand) -> Value:
    """With a number, ``x + n`` and its like are one cheap node that needs no constant."""
    dtype = low.dtype
    if dtype == DType.boolean:
        dtype = DType.i32
    if dtype == DType.f32 and isinstance(a, Value) and not isinstance(b, Value):
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


@aten("sub")
def sub(low: Lowering, a: Operand, b: Operand, *, alpha: Number = 1) -> Value:
    return _combine(low, "sub", a, _scaled(low, b, alpha))


@aten("rsub")
def rsub(low: Lowering, a: Operand, b: Operand, alpha: Number = 1) -> Value:
    return _combine(low, "sub", b, _scaled(low, a, alpha))


@aten("mul")
def mul(low: Lowering, a: Operand, b: Operand) -> Value:
    return _combine(low, "mul", *((a, b) if isinstance(a, Value) else (b, a)))


@aten("div", "true_divide")
def div(low: Lowering, a: Operand, b: Operand, *, rounding_mode: str | None = None) -> Value:
    if rounding_mode is None:
        return _combine(low, "div", a, b)
    wanted, low.dtype = low.dtype, DType.f32
    quotient = _combine(low, "div", a, b)
    rounded = low.floor(quotient) if rounding_mode == "floor" else truncate(low, quotient)
    return low.cast(rounded, wanted)


@aten("floor_divide")
def floor_divide(low: Lowering, a: Operand, b: Operand) -> Value:
    return div(low, a, b, rounding_mode="floor")


@aten("remainder", "fmod")
def remainder(low: Lowering, a: Operand, b: Operand) -> Value:
    x, y = low.operand(a, DType.f32), low.operand(b, DType.f32)
    quotient = low.div(x, y)
    whole = truncate(low, quotient) if low.operator == "fmod" else low.floor(quotient)
    return low.cast(low.sub(x, low.mul(whole, y)), low.dtype)


@aten("maximum")
def maximum(low: Lowering, a: Value, b: Value) -> Value:
    return _combine(low, "maximum", a, b)


@aten("minimum")
def minimum(low: Lowering, a: Value, b: Value) -> Value:
    return _combine(low, "minimum", a, b)


@aten("pow")
def power(low: Lowering, base: Operand, exponent: Operand) -> Value:
    if isinstance(base, Value) and not isinstance(exponent, Value):
        x = low.floats(base)
        simple = {0.5: "sqrt", -0.5: "rsqrt"}.get(float(exponent))
        if simple:
            return low.emit(simple, x)
        if exponent in (2, 3, 4):
            square = low.mul(x, x)
            result = {2: lambda: square, 3: lambda: low.mul(square, x)}.get(
                int(exponent), lambda: low.mul(square, square)
            )()
            return low.cast(result, low.dtype)
    both = low.operand(base, DType.f32), low.operand(exponent, DType.f32)
    return low.cast(low.emit("pow", *both), low.dtype)


@aten("clamp", "clamp_min", "clamp_max")
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


@aten("neg")
def negate(low: Lowering, x: Value) -> Value:
    if x.dtype == DType.i32:
        return low.sub(low.number(0, DType.i32), x)
    return low.neg(low.floats(x))


@aten("abs")
def absolute(low: Lowering, x: Value) -> Value:
    return low.cast(low.abs(low.floats(x)), low.dtype)


def _unary(name: str, op: str) -> None:
    @aten(name)
    def apply(low: Lowering, x: Value) -> Value:
        return low.emit(op, low.floats(x))


for _name in "exp log sqrt rsqrt sin cos tanh erf sigmoid".split():
    _unary(_name, _name)


@aten("floor", "round")
def rounded(low: Lowering, x: Value, *, decimals: int = 0) -> Value:
    if decimals:
        raise OperatorError("rounding to decimals")
    return low.emit("floor" if low.operator == "floor" else "round", x)


@aten("ceil")
def ceil(low: Lowering, x: Value) -> Value:
    return low.neg(low.floor(low.neg(x)))


def truncate(low: Lowering, x: Value) -> Value:
    return low.mul(sign(low, x), low.floor(low.abs(x)))


@aten("trunc", "fix")
def trunc(low: Lowering, x: Value) -> Value:
    return truncate(low, x)


@aten("sign", "sgn")
def sign(low: Lowering, x: Value) -> Value:
    zero = low.number(0.0)
    above = low.cast(low.compare(x, zero, kind="gt"), DType.f32)
    return low.sub(above, low.cast(low.compare(x, zero, kind="lt"), DType.f32))


@aten("reciprocal")
def reciprocal(low: Lowering, x: Value) -> Value:
    return low.div(low.number(1.0), low.floats(x))


@aten("log2")
def log2(low: Lowering, x: Value) -> Value:
    return low.affine(low.log(x), scale=1 / math.log(2))


@aten("log10")
def log10(low: Lowering, x: Value) -> Value:
    return low.affine(low.log(x), scale=1 / math.log(10))


@aten("log1p")
def log1p(low: Lowering, x: Value) -> Value:
    return low.log(low.affine(x, shift=1.0))


@aten("expm1")
def expm1(low: Lowering, x: Value) -> Value:
    return low.affine(low.exp(x), shift=-1.0)


@aten("tan")
def tan(low: Lowering, x: Value) -> Value:
    return low.div(low.sin(x), low.cos(x))


@aten("isnan")
def isnan(low: Lowering, x: Value) -> Value:
    return low.compare(x, x, kind="ne")


@aten("isinf")
def isinf(low: Lowering, x: Value) -> Value:
    return low.compare(low.abs(x), low.constant(np.float32(np.inf)), kind="eq")
