"""Layers in integers: codes of 8 bits times weights of 8 bits, added up in 32.

A number of x is ``(code - x_zero) * x_scale`` and a weight ``code * its row's scale``; ``scale`` is
the product of the two, for each output. All steps are 32-bit floats, rounded one after the other:

    t = float(sum((x - x_zero) * weight)) * scale + bias
    t = activation(t + (residual - residual_zero) * residual_scale)
    result = clip(rint(t * (1 / out_scale)) + out_zero, 0, 255), or t itself without an out_scale

Codes whose activation only limits them (none, relu, relu6) take fewer: they are made in steps of
the result, with multiply-adds that are rounded once:

    inverse = 1 / out_scale; step = residual_scale * inverse
    start = bias * inverse - residual_zero * step
    u = fma(float(sum((x - x_zero) * weight)), scale * inverse, start)
    u = limit(fma(residual, step, u)), to 0 and more, and to 6 * inverse and less
    result = clip(rint(u) + out_zero, 0, 255)

Halves are rounded to even. Padding is zero, whose code is x_zero.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.graph.ops.activation import activate, check_activation
from satchel.graph.ops.conv import check_weight, window_sums
from satchel.graph.ops.registry import Arrays, Attrs, Types, define, require
from satchel.graph.ops.window import Window, image_size
from satchel.graph.types import DType, TensorType, attr_float, attr_int

Array = NDArray[Any]

STEPS = ("activation", "x_zero", "out_scale", "out_zero", "residual_scale", "residual_zero")
LIMITS = {
    "none": (-np.inf, np.inf),
    "relu": (0.0, np.inf),
    "relu6": (0.0, 6.0),
}  # what activations only limit to
MAX_COLUMNS = 65536  # 255 * 127 * 65536 is below 2^31


def _finish_type(op: str, types: Types, attrs: Attrs, shape: tuple[Any, ...]) -> list[TensorType]:
    """The type of the result, when everything but x and the weight's shape fits."""
    x, weight, scale = types[:3]
    assert x and weight and scale
    outputs, cols = weight.shape
    require(isinstance(cols, int) and cols <= MAX_COLUMNS, op, "too many columns to add up", types)
    require(x.dtype == DType.u8, op, "x must be u8", types)
    require(scale == TensorType((outputs,)), op, "the scale does not fit", types)
    bias, residual = (*types[3:], None, None)[:2]
    if bias is not None:
        require(bias == TensorType((outputs,)), op, "the bias does not fit", types)
    if residual is not None:
        fits = residual == TensorType(shape, DType.u8)
        require(fits, op, "the residual must be u8 and like the result", types)
        require(attr_float(attrs, "residual_scale") > 0, op, "the residual's scale must be above 0")
    for name in ("x_zero", "out_zero", "residual_zero"):
        require(0 <= attr_int(attrs, name, 0) <= 255, op, f"{name} is not a code")
    out_scale = attr_float(attrs, "out_scale", 0.0)
    require(out_scale >= 0, op, "the scale of the result must be above 0")
    check_activation(op, attrs)
    return [TensorType(shape, DType.u8 if out_scale else DType.f32)]


def finish(sums: Array, arrays: Arrays, attrs: Attrs) -> Array:
    """The result of a layer from its sums (int32) and the inputs after the weight."""
    scale, bias, residual = (*arrays[2:], None, None)[:3]
    assert scale is not None
    out_scale = np.float32(attr_float(attrs, "out_scale", 0.0))
    zero = np.float32(attr_int(attrs, "residual_zero", 0))
    residual_scale = np.float32(attr_float(attrs, "residual_scale", 0.0))
    activation = attrs.get("activation", "none")
    if out_scale and activation in LIMITS:
        inverse = np.float32(1) / out_scale
        start = np.float32(0) if bias is None else bias * inverse
        if residual is not None:
            start = start - zero * (residual_scale * inverse)
        steps = fused(sums.astype(np.float32), scale * inverse, start)
        if residual is not None:
            steps = fused(residual.astype(np.float32), residual_scale * inverse, steps)
        lowest, highest = LIMITS[activation]
        return _codes(np.clip(steps, lowest, np.float32(highest) * inverse), attrs)
    total: Array = sums.astype(np.float32) * scale
    if bias is not None:
        total = total + bias
    if residual is not None:
        total = total + (residual.astype(np.float32) - zero) * residual_scale
    total = activate(total, attrs)
    return _codes(total * (np.float32(1) / out_scale), attrs) if out_scale else total


def fused(a: Array, b: Array, c: Array) -> Array:
    """``a * b + c`` of 32-bit floats, whose product is exact in 64."""
    result: Array = np.asarray(a.astype(np.float64) * np.asarray(b, np.float64) + c, np.float32)
    return result


def _codes(steps: Array, attrs: Attrs) -> Array:
    codes: Array = np.clip(
        np.rint(steps).astype(np.float64) + attr_int(attrs, "out_zero", 0), 0, 255
    )
    return codes.astype(np.uint8)


@define("qconv2d", (3, 5), "kernel", "stride", "padding", "dilation", "groups", *STEPS)
class QConv2d:
    """conv2d in integers: x u8, weight i8, scale f32, bias f32?, residual u8?"""

    @staticmethod
    def types(types: Types, attrs: Attrs) -> list[TensorType]:
        window = Window.of("qconv2d", attrs)
        outputs = check_weight("qconv2d", types, attrs, window, DType.i8)
        height, width, _ = image_size("qconv2d", types)
        assert types[0]
        size = window.output("qconv2d", height, width)
        return _finish_type("qconv2d", types, attrs, (types[0].shape[0], *size, outputs))

    @staticmethod
    def run(arrays: Arrays, attrs: Attrs) -> list[Array]:
        x, weight = arrays[0], arrays[1]
        window = Window.of("qconv2d", attrs)
        out = window.output("qconv2d", *x.shape[1:3])
        centred = x.astype(np.float64) - attr_int(attrs, "x_zero", 0)
        groups = attr_int(attrs, "groups", 1)
        sums = window_sums(centred, weight.astype(np.float64), window, out, groups, 0.0)
        return [finish(sums.astype(np.int32), arrays, attrs)]


@define("qlinear", (3, 5), *STEPS)
class QLinear:
    """linear in integers: x u8, weight i8, scale f32, bias f32?, residual u8?"""

    @staticmethod
    def types(types: Types, attrs: Attrs) -> list[TensorType]:
        x, weight = types[0], types[1]
        assert x and weight
        fits = len(weight.shape) == 2 and weight.dtype == DType.i8
        require(fits, "qlinear", "the weight must be i8 [out, in]", types)
        fits = len(x.shape) >= 1 and x.shape[-1] == weight.shape[1]
        require(fits, "qlinear", "the inner sizes differ", types)
        return _finish_type("qlinear", types, attrs, (*x.shape[:-1], weight.shape[0]))

    @staticmethod
    def run(arrays: Arrays, attrs: Attrs) -> list[Array]:
        x, weight = arrays[0], arrays[1]
        centred = x.astype(np.float64) - attr_int(attrs, "x_zero", 0)
        sums = centred @ weight.astype(np.float64).T  # exact: below 2^53
        return [finish(sums.astype(np.int32), arrays, attrs)]
