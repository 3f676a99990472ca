"""Convolutions over images that are channels-last, [N, H, W, C]; one row makes them 1-d.

A weight is ``[outputs, kh * kw * channels / groups]``, its columns in the order (kh, kw, c).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.graph.ops.activation import activate, check_activation
from satchel.graph.ops.registry import Arrays, Attrs, Trait, Types, define, require
from satchel.graph.ops.window import Size, Window, groups_of, image_size, image_type
from satchel.graph.types import DType, TensorType, attr_int

Array = NDArray[Any]


def check_weight(op: str, types: Types, attrs: Attrs, window: Window, dtype: DType) -> int:
    """The number of outputs of a weight that fits the image, the kernel and the groups."""
    weight = types[1]
    assert weight
    fits = len(weight.shape) == 2 and weight.dtype == dtype
    require(fits, op, f"the weight must be {dtype.name} [out, in]", types)
    outputs, cols = weight.shape
    assert isinstance(outputs, int)
    _, _, channels = image_size(op, types)
    groups = groups_of(op, attrs, channels, outputs)
    kh, kw = window.kernel
    require(cols == kh * kw * (channels // groups), op, "the weight does not fit", types)
    return outputs


def _check_float(op: str, types: Types, attrs: Attrs, window: Window) -> int:
    x, bias = types[0], types[2] if len(types) > 2 else None
    assert x
    require(x.dtype == DType.f32, op, "x must be f32", types)
    outputs = check_weight(op, types, attrs, window, DType.f32)
    if bias is not None:
        require(bias == TensorType((outputs,)), op, "the bias does not fit", types)
    check_activation(op, attrs)
    return outputs


def window_sums(
    x: Array, weight: Array, window: Window, out: tuple[int, int], groups: int, fill: float
) -> Array:
    """The products of all windows with the weight, [N, OH, OW, outputs], in weight's dtype."""
    outputs, _ = weight.shape
    kh, kw = window.kernel
    taps = weight.reshape(groups, outputs // groups, kh * kw, -1)
    total = np.zeros((groups, x.shape[0], *out, outputs // groups), weight.dtype)
    for number, seen in enumerate(window.taps(x, out, fill)):
        split = seen.reshape(*seen.shape[:3], groups, -1).astype(weight.dtype)
        for group in range(groups):
            total[group] += split[..., group, :] @ taps[group, :, number].T
    return np.moveaxis(total, 0, 3).reshape(x.shape[0], *out, outputs)


@define(
    "conv2d",
    (2, 4),
    "kernel",
    "stride",
    "padding",
    "dilation",
    "groups",
    "activation",
    traits=[Trait.layer, Trait.integer_layer],
)
class Conv2d:
    """Each window's product with the weight, plus bias and residual, through the activation.

    Inputs: x, weight, bias?, residual? The residual is like the result; groups take none.
    """

    @staticmethod
    def types(types: Types, attrs: Attrs) -> list[TensorType]:
        window = Window.of("conv2d", attrs)
        outputs = _check_float("conv2d", types, attrs, window)
        height, width, _ = image_size("conv2d", types)
        assert types[0]
        result = image_type(types[0], window.output("conv2d", height, width), outputs)
        if len(types) > 3 and types[3] is not None:
            require(types[3] == result, "conv2d", "the residual must be like the result", types)
            require(attr_int(attrs, "groups", 1) == 1, "conv2d", "groups take no residual", types)
        return [result]

    @staticmethod
    def run(arrays: Arrays, attrs: Attrs) -> list[Array]:
        x, weight = arrays[0], arrays[1]
        window = Window.of("conv2d", attrs)
        out = window.output("conv2d", *x.shape[1:3])
        result = window_sums(x, weight, window, out, attr_int(attrs, "groups", 1), 0.0)
        for more in arrays[2:]:
            if more is not None:
                result = result + more
        return [activate(result.astype(np.float32), attrs)]


@define(
    "conv_transpose2d",
    (2, 3),
    "kernel",
    "stride",
    "padding",
    "dilation",
    "groups",
    "activation",
    traits=[Trait.layer],
)
class ConvTranspose2d:
    """What conv2d would read from: each pixel spread over its window, the windows added up.

    The padding is taken off the result; at the bottom and right it may be negative, which adds
    rows and columns there (torch's output_padding). The weight's columns are in the order (kh, kw,
    c) as for conv2d, c being a channel of x.
    """

    @staticmethod
    def types(types: Types, attrs: Attrs) -> list[TensorType]:
        window = Window.of("conv_transpose2d", attrs, overhang=True)
        outputs = _check_float("conv_transpose2d", types, attrs, window)
        height, width, _ = image_size("conv_transpose2d", types)
        assert types[0]
        return [image_type(types[0], _spread_size(window, height, width), outputs)]

    @staticmethod
    def run(arrays: Arrays, attrs: Attrs) -> list[Array]:
        x, weight = arrays[0], arrays[1]
        batch, height, width, _ = x.shape
        window = Window.of("conv_transpose2d", attrs, overhang=True)
        out_h, out_w = _spread_size(window, height, width)
        groups, outputs = attr_int(attrs, "groups", 1), len(weight)
        (kh, kw), (sh, sw), (dh, dw) = window.kernel, window.stride, window.dilation
        top, _, left, _ = window.padding
        taps = weight.reshape(groups, outputs // groups, kh * kw, -1)
        split = x.reshape(batch, height, width, groups, -1)
        whole = (height - 1) * sh + window.reach[0], (width - 1) * sw + window.reach[1]
        size = max(whole[0], out_h + top), max(whole[1], out_w + left)
        total = np.zeros((batch, *size, groups, outputs // groups), np.float32)
        for tap in range(kh * kw):
            y, x0 = tap // kw * dh, tap % kw * dw
            part = np.einsum("nhwgc,goc->nhwgo", split, taps[:, :, tap])
            total[:, y : y + height * sh : sh, x0 : x0 + width * sw : sw][:, :height, :width] += (
                part
            )
        result = total[:, top : top + out_h, left : left + out_w].reshape(
            batch, out_h, out_w, outputs
        )
        if len(arrays) > 2 and arrays[2] is not None:
            result = result + arrays[2]
        return [activate(result, attrs)]


def _spread_size(window: Window, height: Size, width: Size) -> tuple[Size, Size]:
    top, bottom, left, right = window.padding
    rows = (height - 1) * window.stride[0] + (window.reach[0] - top - bottom)
    columns = (width - 1) * window.stride[1] + (window.reach[1] - left - right)
    some = all(not isinstance(size, int) or size >= 1 for size in (rows, columns))
    require(some, "conv_transpose2d", "the padding leaves nothing")
    return rows, columns
