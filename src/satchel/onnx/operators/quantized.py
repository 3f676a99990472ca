"""Quantised operators. Codes are whole numbers of 32 bits here, and layers multiply in floats."""

from __future__ import annotations

from satchel.graph.ir import DType, Value
from satchel.onnx.operators.layers import conv, matrix_product
from satchel.onnx.operators.registry import Call, onnx_operator
from satchel.torch.lowering import Lowering, axis_of
from satchel.torch.operator_error import OperatorError

# Least and greatest code by whether a type has a sign; the zero point's type says which, and is
# told by the importer.
RANGES = {"uint8": (0, 255), "int8": (-128, 127), "uint16": (0, 65535), "int16": (-32768, 32767)}


def _along(low: Lowering, numbers: Value, x: Value, axis: int) -> Value:
    """One number, or one for each entry of an axis."""
    if len(numbers.shape) == 0 or numbers.shape == (1,):
        return low.reshape(numbers, ())
    if len(numbers.shape) > 1:
        raise OperatorError("a scale for each block")
    rank = len(x.shape)
    place = axis_of(axis, rank)
    return low.reshape(numbers, tuple(numbers.shape[0] if i == place else 1 for i in range(rank)))


def dequantized(low: Lowering, x: Value, scale: Value, zero: Value | None, axis: int = 1) -> Value:
    codes = low.floats(x)
    if zero is not None:
        codes = low.sub(codes, low.floats(_along(low, zero, x, axis)))
    return low.mul(codes, low.floats(_along(low, scale, x, axis)))


def quantized(
    low: Lowering, x: Value, scale: Value, zero: Value | None, kind: str, axis: int = 1
) -> Value:
    least, most = RANGES[kind]
    steps = low.round(low.div(x, _along(low, scale, x, axis)))
    if zero is not None:
        steps = low.add(steps, low.floats(_along(low, zero, x, axis)))
    return low.cast(low.clamp(steps, low=float(least), high=float(most)), DType.i32)


def _kind(call: Call, place: int) -> str:
    """The type of an input's codes, as the importer found it."""
    kinds = call.get("#types", [])
    found = kinds[place] if place < len(kinds) else ""
    kind = found or "uint8"
    if kind not in RANGES:
        raise OperatorError(f"codes of the type {kind}")
    return str(kind)


@onnx_operator("DequantizeLinear")
def dequantize(
    low: Lowering, call: Call, x: Value, scale: Value, zero: Value | None = None
) -> Value:
    return dequantized(low, x, scale, zero, call.get("axis", 1))


@onnx_operator("QuantizeLinear")
def quantize(low: Lowering, call: Call, x: Value, scale: Value, zero: Value | None = None) -> Value:
    return quantized(low, x, scale, zero, _kind(call, 2), call.get("axis", 1))


@onnx_operator("DynamicQuantizeLinear")
def dynamic_quantize(low: Lowering, call: Call, x: Value) -> list[Value]:
    axes = tuple(range(len(x.shape)))
    zero = low.number(0.0)
    least = low.minimum(low.reduce_min(x, axes=axes, keepdims=0), zero)
    most = low.maximum(low.reduce_max(x, axes=axes, keepdims=0), zero)
    scale = low.affine(low.sub(most, least), scale=1 / 255)
    start = low.round(low.clamp(low.neg(low.div(least, scale)), low=0.0, high=255.0))
    codes = low.clamp(low.add(low.round(low.div(x, scale)), start), low=0.0, high=255.0)
    return [low.cast(codes, DType.i32), scale, low.cast(start, DType.i32)]


def _centred(low: Lowering, x: Value, zero: Value | None, axis: int) -> Value:
    codes = low.floats(x)
    return codes if zero is None else low.sub(codes, low.floats(_along(low, zero, x, axis)))


@onnx_operator("MatMulInteger")
def matmul_integer(
    low: Lowering,
    call: Call,
    a: Value,
    b: Value,
    a_zero: Value | None = None,
    b_zero: Value | None = None,
) -> Value:
    left = _centred(low, a, a_zero, -2)
    made = matrix_product(low, call, left, _centred(low, b, b_zero, -1))
    return low.cast(made, DType.i32)


@onnx_operator("ConvInteger")
def conv_integer(
    low: Lowering,
    call: Call,
    x: Value,
    weight: Value,
    x_zero: Value | None = None,
    w_zero: Value | None = None,
) -> Value:
    made = conv(low, call, _centred(low, x, x_zero, 1), _centred(low, weight, w_zero, 0))
    return low.cast(made, DType.i32)


@onnx_operator("QLinearMatMul")
def qlinear_matmul(low: Lowering, call: Call, *given: Value) -> Value:
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = given
    left = dequantized(low, a, a_scale, a_zero, -2)
    made = matrix_product(low, call, left, dequantized(low, b, b_scale, b_zero, -1))
    return quantized(low, made, y_scale, y_zero, _kind(call, 7), -2)


@onnx_operator("QLinearConv")
def qlinear_conv(low: Lowering, call: Call, *given: Value) -> Value:
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, *rest = given
    bias = None
    if rest:
        product = low.mul(low.reshape(x_scale, ()), w_scale)
        bias = low.mul(low.floats(rest[0]), product)
    image = dequantized(low, x, x_scale, x_zero)
    made = conv(low, call, image, dequantized(low, w, w_scale, w_zero, 0), bias)
    return quantized(low, made, y_scale, y_zero, _kind(call, 7))
