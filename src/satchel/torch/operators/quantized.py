"""What PT2E and torchao leave in a module: codes, and floats that are rounded as codes would be.

The numbers are those of the quantised module; layers multiply what the codes stand for in floats,
unless the recipe is ``keep``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from satchel.graph.ir import DType, Value
from satchel.quantize.affine import CodedMatrix
from satchel.torch.lowering import Lowering, axis_of
from satchel.torch.operators.linear import matmul
from satchel.torch.operators.registry import aten, of_namespace

quantized = of_namespace("quantized_decomposed")


def _along(low: Lowering, x: Value, numbers: Any, axis: int | None) -> Value:
    """A scale or zero: one number, or one for each entry of an axis."""
    value = low.operand(numbers, DType.f32)
    if axis is None or not value.shape:
        return low.reshape(value, ()) if value.shape == (1,) else value
    shape = [1] * len(x.shape)
    shape[axis_of(axis, len(x.shape))] = low.known(value.shape[0], "quantisation")
    return low.reshape(value, tuple(shape))


def _codes(low: Lowering, x: Value, scale: Any, zero: Any, axis: int | None, *limits: int) -> Value:
    """As torch's: x times 1 / scale, rounded to even, plus zero, within the limits."""
    inverse = low.div(low.number(1.0), _along(low, x, scale, axis))
    steps = low.add(low.round(low.mul(low.floats(x), inverse)), _along(low, x, zero, axis))
    within = low.minimum(low.maximum(steps, low.number(float(limits[0]))), low.number(limits[1]))
    return low.cast(within, DType.i32)


def _floats(low: Lowering, x: Value, scale: Any, zero: Any, axis: int | None) -> Value:
    codes = low.floats(x)
    known = zero.constant if isinstance(zero, Value) else zero
    if (isinstance(zero, Value) and known is None) or np.any(known):
        codes = low.sub(codes, _along(low, x, zero, axis))
    made = low.mul(codes, _along(low, x, scale, axis))
    if x.constant is not None and made.constant is not None and not np.any(known):
        _remember(low, x.constant, made.constant, _along(low, x, scale, axis).constant)
    return made


def _remember(low: Lowering, codes: Any, floats: Any, scales: Any) -> None:
    """The codes of a matrix with a scale for all or for each row, for who keeps them."""
    if codes.ndim == 2 and scales.size in (1, len(codes)) and np.abs(codes).max() <= 128:
        rows = np.broadcast_to(scales.reshape(-1), len(codes)).astype(np.float32)
        low.coded.append(CodedMatrix(floats, codes.astype(np.int8), rows))


@quantized("quantize_per_tensor")
def quantize(
    low: Lowering, x: Value, scale: Any, zero: Any, least: int, most: int, *_: Any
) -> Value:
    return _codes(low, x, scale, zero, None, least, most)


@quantized("dequantize_per_tensor")
def dequantize(low: Lowering, x: Value, scale: Any, zero: Any, *_: Any, **__: Any) -> Value:
    return _floats(low, x, scale, zero, None)


@quantized("quantize_per_channel")
def quantize_channels(
    low: Lowering, x: Value, scales: Value, zeros: Value, axis: int, least: int, most: int, *_: Any
) -> Value:
    return _codes(low, x, scales, zeros, axis, least, most)


@quantized("dequantize_per_channel")
def dequantize_channels(
    low: Lowering, x: Value, scales: Value, zeros: Any, axis: int, *_: Any, **__: Any
) -> Value:
    return _floats(low, x, scales, zeros, axis)


@quantized("quantize_per_token")
def quantize_tokens(
    low: Lowering, x: Value, scales: Value, zeros: Value, least: int, most: int, *_: Any
) -> Value:
    return _codes(low, x, scales, zeros, None, least, most)


@quantized("dequantize_per_token")
def dequantize_tokens(
    low: Lowering, x: Value, scales: Value, zeros: Value, *_: Any, **__: Any
) -> Value:
    return _floats(low, x, scales, zeros, None)


@quantized("choose_qparams")
def choose_steps(
    low: Lowering, x: Value, least: int, most: int, smallest: float, *_: Any
) -> list[Value]:
    """The scale and zero that reach from the least number to the greatest, 0 among them."""
    axes = tuple(range(len(x.shape)))
    zero = low.number(0.0)
    low_end = low.minimum(low.reduce_min(x, axes=axes, keepdims=0), zero)
    high_end = low.maximum(low.reduce_max(x, axes=axes, keepdims=0), zero)
    scale = low.affine(low.sub(high_end, low_end), scale=1 / (most - least))
    scale = low.maximum(scale, low.number(float(smallest)))
    place = low.sub(low.number(float(least)), low.round(low.div(low_end, scale)))
    within = low.minimum(low.maximum(place, low.number(float(least))), low.number(float(most)))
    return [low.reshape(scale, (1,)), low.cast(low.reshape(within, (1,)), DType.i64)]


@aten("_int_mm")
def int_product(low: Lowering, a: Value, b: Value) -> Value:
    """Of numbers of 8 bits. Floats hold sums of 1,024 of their products exactly."""
    inner = low.known(a.shape[-1], "a product of whole numbers")
    parts = []
    for start in range(0, inner, 1024):
        stop = min(start + 1024, inner)
        left, right = low.slice(a, 1, start, stop), low.slice(b, 0, start, stop)
        wanted, low.dtype = low.dtype, DType.f32
        product = matmul(low, low.floats(left), low.floats(right))
        low.dtype = wanted
        parts.append(low.cast(product, DType.i32))
    total = parts[0]
    for part in parts[1:]:
        total = low.add(total, part)
    return total
