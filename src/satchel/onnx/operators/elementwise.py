"""Functions of each number, and of two at the same place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from satchel.graph.ir import DType, Value
from satchel.onnx.operators.registry import (
    Call,
    known_array,
    onnx_operator,
    same_type,
)
from satchel.onnx.types import cast_to
from satchel.torch.lowering import Lowering
from satchel.torch.operator_error import OperatorError
from satchel.torch.operators import activation
from satchel.torch.operators.elementwise import ceil as ceiling
from satchel.torch.operators.elementwise import negate, sign_of


def _is_zero(low: Lowering, x: Value) -> Value:
    return low.compare(low.cast(x, DType.i32), low.number(0, DType.i32), kind="eq")


def _sign(low: Lowering, x: Value) -> Value:
    if x.dtype == DType.f32:
        return sign_of(low, x)
    zero = low.number(0, x.dtype)
    above, below = (low.cast(low.compare(x, zero, kind=k), x.dtype) for k in ("gt", "lt"))
    return low.sub(above, below)


def _unary(name: str, function: Callable[[Lowering, Value], Value]) -> None:
    @onnx_operator(name)
    def apply(low: Lowering, call: Call, x: Value) -> Value:
        return function(low, x)


def _same(name: str) -> None:
    """An operator that is an op of the same name."""
    _unary(name, lambda low, x: low.emit(name.lower(), x))


for _name in (
    "Exp Log Sqrt Sigmoid Tanh Erf Sin Cos Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh Floor "
    "Round"
).split():
    _same(_name)
_unary("Relu", activation.relu)
_unary("Softplus", activation.softplus)
_unary("Softsign", activation.softsign)
_unary("Mish", activation.mish)
_unary("Neg", negate)
_unary("Ceil", ceiling)
_unary("Sign", _sign)
_unary("Identity", lambda low, x: x)
_unary("Reciprocal", lambda low, x: low.div(low.number(1.0), x))
_unary("HardSwish", lambda low, x: low.hardswish(x))
_unary("Not", _is_zero)
_unary("IsNaN", lambda low, x: low.compare(x, x, kind="ne"))


@onnx_operator("Abs")
def absolute(low: Lowering, call: Call, x: Value) -> Value:
    return low.abs(x) if x.dtype == DType.f32 else low.maximum(x, negate(low, x))


@onnx_operator("Add", "Sub", "Mul")
def arithmetic(low: Lowering, call: Call, a: Value, b: Value) -> Value:
    return low.emit(call.name.lower(), *same_type(low, a, b))


@onnx_operator("Div")
def divide(low: Lowering, call: Call, a: Value, b: Value) -> Value:
    if a.dtype == DType.f32:
        return low.div(a, b)
    return low.integer(a, b, kind="trunc_div")


@onnx_operator("Mod")
def modulo(low: Lowering, call: Call, a: Value, b: Value) -> Value:
    if a.dtype == DType.f32:
        rest = low.fmod(a, b)
        if call.get("fmod", 0):
            return rest
        raise OperatorError("Mod of floats with fmod=0")
    return low.integer(a, b, kind="fmod" if call.get("fmod", 0) else "remainder")


@onnx_operator("Pow")
def power(low: Lowering, call: Call, base: Value, exponent: Value) -> Value:
    if DType.f32 not in (base.dtype, exponent.dtype):
        return low.integer(base, low.cast(exponent, base.dtype), kind="pow")
    known = exponent.constant
    x = low.floats(base)
    result = low.mul(x, x) if known is not None and known.size == 1 and known.item() == 2 else None
    if result is None or result.shape != x.shape:
        result = low.emit("pow", x, low.floats(exponent))
    return low.cast(result, base.dtype)


@onnx_operator("Max", "Min", "Sum", "Mean")
def of_many(low: Lowering, call: Call, *values: Value) -> Value:
    op = {"Max": "maximum", "Min": "minimum"}.get(call.name, "add")
    result = values[0]
    for value in values[1:]:
        result = low.emit(op, result, value)
    return low.affine(result, scale=1 / len(values)) if call.name == "Mean" else result


@onnx_operator("And", "Or", "Xor")
def logic(low: Lowering, call: Call, a: Value, b: Value) -> Value:
    left, right = (low.cast(v, DType.i32) for v in (a, b))
    made = low.integer(left, right, kind=call.name.lower())
    return low.cast(made, DType.boolean)


@onnx_operator("BitwiseAnd", "BitwiseOr", "BitwiseXor")
def bits(low: Lowering, call: Call, a: Value, b: Value) -> Value:
    return low.integer(a, b, kind=call.name.removeprefix("Bitwise").lower())


@onnx_operator("BitwiseNot")
def bitwise_not(low: Lowering, call: Call, x: Value) -> Value:
    return low.sub(low.number(-1, x.dtype), x)


@onnx_operator("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
def comparison(low: Lowering, call: Call, a: Value, b: Value) -> Value:
    kinds = {"Equal": "eq", "Greater": "gt", "GreaterOrEqual": "ge", "Less": "lt"}
    return low.compare(*same_type(low, a, b), kind=kinds.get(call.name, "le"))


@onnx_operator("Where")
def where(low: Lowering, call: Call, condition: Value, a: Value, b: Value) -> Value:
    dtype = a.dtype
    return low.cast(low.where(condition, *same_type(low, a, b)), dtype)


@onnx_operator("IsInf")
def is_infinite(low: Lowering, call: Call, x: Value) -> Value:
    found = []
    for name, kind, edge in (("detect_positive", "gt", 1), ("detect_negative", "lt", -1)):
        if call.get(name, 1):
            largest = low.number(edge * float(np.finfo(np.float32).max))
            found.append(low.cast(low.compare(x, largest, kind=kind), DType.i32))
    if not found:
        return low.compare(x, x, kind="lt")
    total = found[0] if len(found) == 1 else low.maximum(*found)
    return low.cast(total, DType.boolean)


@onnx_operator("Clip")
def clip(
    low: Lowering, call: Call, x: Value, least: Value | None = None, most: Value | None = None
) -> Value:
    if call.version < 11:
        given = {"low": call.get("min"), "high": call.get("max")}
    else:
        bounds = {"low": least, "high": most}
        if x.dtype != DType.f32 or any(
            v is not None and v.constant is None for v in bounds.values()
        ):
            if least is not None:
                x = low.maximum(x, least)
            return x if most is None else low.minimum(x, most)
        given = {
            k: None if v is None else float(known_array(v, k).item()) for k, v in bounds.items()
        }
    finite = {k: float(v) for k, v in given.items() if v is not None and np.isfinite(v)}
    if len(finite) == 2 and finite["low"] > finite["high"]:
        finite["low"] = finite["high"]
    return low.clamp(x, **finite) if finite else x


@onnx_operator("Cast", "CastLike")
def cast(low: Lowering, call: Call, x: Value, like: Value | None = None) -> Value:
    if like is not None:
        if like.dtype == DType.i32 and x.dtype != DType.i32:
            raise OperatorError("a cast to a type that is not known any more")
        return low.cast(x, like.dtype)
    return cast_to(low, x, call.get("to"))


@onnx_operator("LeakyRelu")
def leaky_relu(low: Lowering, call: Call, x: Value) -> Value:
    return activation.leaky_relu(low, x, call.get("alpha", 0.01))


@onnx_operator("PRelu")
def prelu(low: Lowering, call: Call, x: Value, slope: Value) -> Value:
    below = low.neg(low.relu(low.neg(x)))
    return low.add(low.relu(x), low.mul(below, slope))


@onnx_operator("Elu")
def elu(low: Lowering, call: Call, x: Value) -> Value:
    return activation.elu(low, x, call.get("alpha", 1.0))


@onnx_operator("Selu")
def selu(low: Lowering, call: Call, x: Value) -> Value:
    alpha, gamma = (
        call.get("alpha", 1.67326319217681884765625),
        call.get("gamma", 1.0507010221481323),
    )
    return activation.elu(low, x, alpha, gamma)


@onnx_operator("Celu")
def celu(low: Lowering, call: Call, x: Value) -> Value:
    return activation.celu(low, x, call.get("alpha", 1.0))


@onnx_operator("Gelu")
def gelu(low: Lowering, call: Call, x: Value) -> Value:
    return low.gelu_tanh(x) if call.get("approximate", "none") == "tanh" else low.gelu(x)


@onnx_operator("HardSigmoid")
def hard_sigmoid(low: Lowering, call: Call, x: Value) -> Value:
    line = low.affine(x, scale=float(call.get("alpha", 0.2)), shift=float(call.get("beta", 0.5)))
    return low.clamp(line, low=0.0, high=1.0)


@onnx_operator("ThresholdedRelu")
def thresholded(low: Lowering, call: Call, x: Value) -> Value:
    above = low.compare(x, low.number(float(call.get("alpha", 1.0))), kind="gt")
    return low.where(above, x, low.number(0.0))


@onnx_operator("Shrink")
def shrink(low: Lowering, call: Call, x: Value) -> Value:
    edge, bias = float(call.get("lambd", 0.5)), float(call.get("bias", 0.0))
    x = low.floats(x)
    above = low.compare(x, low.number(edge), kind="gt")
    below = low.compare(x, low.number(-edge), kind="lt")
    inner = low.where(above, low.affine(x, shift=-bias), low.number(0.0))
    return low.where(below, low.affine(x, shift=bias), inner)


@onnx_operator("BitShift")
def bit_shift(low: Lowering, call: Call, a: Value, b: Value) -> Value:
    kind = "shl" if call.get("direction") == "LEFT" else "shr"
    return low.integer(a, b, kind=kind)


@onnx_operator("Dropout")
def dropout(low: Lowering, call: Call, x: Value, *rest: Any) -> list[Value]:
    training = rest[1] if len(rest) > 1 else None
    if training is not None and known_array(training, "a training mode").item():
        raise OperatorError("Dropout in training mode")
    if call.outputs < 2:
        return [x]
    kept = low.constant(np.ones((), bool), "kept")
    return [x, low.expand(kept, x.shape, x)]
