"""Pooling over images that are channels-last, [N, H, W, C]."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.graph.ops.registry import Arrays, Attrs, Trait, Types, define, require
from satchel.graph.ops.window import Window, image_size, image_type
from satchel.graph.types import DType, TensorType, attr_int

Array = NDArray[Any]


def _check(
    op: str, types: Types, attrs: Attrs, window: Window, codes: bool = False
) -> list[TensorType]:
    (x,) = types
    assert x
    fits = x.dtype == DType.f32 or (codes and x.dtype == DType.u8)
    require(fits, op, "x must be f32" + (" or u8" if codes else ""), types)
    height, width, channels = image_size(op, types)
    size = window.output(op, height, width, bool(attr_int(attrs, "ceil_mode", 0)))
    # A window of nothing but padding would have no largest value and no mean.
    top, bottom, left, right = window.padding
    fits = max(top, bottom) < window.reach[0] and max(left, right) < window.reach[1]
    require(fits, op, "the padding is as large as the kernel")
    return [image_type(x, size, channels)]


@define(
    "max_pool2d",
    1,
    "kernel",
    "stride",
    "padding",
    "dilation",
    "ceil_mode",
    traits=[Trait.keeps_codes],
)
class MaxPool2d:
    """The largest value of each window; what lies outside of the image does not count."""

    @staticmethod
    def types(types: Types, attrs: Attrs) -> list[TensorType]:
        return _check("max_pool2d", types, attrs, Window.of("max_pool2d", attrs), codes=True)

    @staticmethod
    def run(arrays: Arrays, attrs: Attrs) -> list[Array]:
        (x,) = arrays
        window = Window.of("max_pool2d", attrs)
        ceil = bool(attr_int(attrs, "ceil_mode", 0))
        height, width = x.shape[1:3]
        out = window.output("max_pool2d", height, width, ceil)
        taps = window.taps(x, out, 0 if x.dtype == np.uint8 else -np.inf)
        result = next(taps)
        for seen in taps:
            result = np.maximum(result, seen)
        return [result]


@define("avg_pool2d", 1, "kernel", "stride", "padding", "ceil_mode", "count_include_pad", "divisor")
class AvgPool2d:
    """The mean of each window. It is over the window's pixels of the image, with
    ``count_include_pad`` (the default) also of the padding; or the sum over ``divisor``.
    """

    @staticmethod
    def types(types: Types, attrs: Attrs) -> list[TensorType]:
        attr_int(attrs, "count_include_pad", 1)
        require(attr_int(attrs, "divisor", 0) >= 0, "avg_pool2d", "the divisor is negative")
        return _check("avg_pool2d", types, attrs, Window.of("avg_pool2d", attrs))

    @staticmethod
    def run(arrays: Arrays, attrs: Attrs) -> list[Array]:
        (x,) = arrays
        height, width = x.shape[1:3]
        window = Window.of("avg_pool2d", attrs)
        out = window.output("avg_pool2d", height, width, bool(attr_int(attrs, "ceil_mode", 0)))
        total = np.zeros((len(x), *out, x.shape[3]), np.float32)
        for seen in window.taps(x, out, 0.0):
            total += seen
        divisor = attr_int(attrs, "divisor", 0)
        if divisor:
            return [total / np.float32(divisor)]
        # What lies past the padding, where ceil_mode lets a window reach, never counts.
        counted = bool(attr_int(attrs, "count_include_pad", 1))
        before = (window.padding[0], window.padding[2])
        lengths = []
        for axis, size in enumerate((height, width)):
            start = np.arange(out[axis]) * window.stride[axis] - before[axis]
            limit = window.padded(height, width)[axis] - before[axis] if counted else size
            first = start if counted else np.maximum(start, 0)
            lengths.append(np.minimum(start + window.kernel[axis], limit) - first)
        count = np.outer(*lengths).astype(np.float32)
        return [total / count[None, :, :, None]]
