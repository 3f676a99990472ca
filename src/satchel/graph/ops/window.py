"""Windows that slide over an image: their attributes, sizes and where they look."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.graph.ops.registry import Attrs, Types, require
from satchel.graph.types import TensorType, attr_int, attr_ints

Array = NDArray[Any]

Size = Any  # a number, or a symbolic size, which is computed with alike
LARGEST = 1 << 20  # of a kernel, stride, padding or dilation


@dataclass(frozen=True)
class Window:
    """kernel, stride and dilation as (height, width); padding as (top, bottom, left, right)."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int, int, int]
    dilation: tuple[int, int]

    @staticmethod
    def of(op: str, attrs: Attrs, overhang: bool = False) -> Window:
        """From a node's attributes; all but the kernel have the usual values when left out."""

        def pair(name: str) -> tuple[int, int]:
            values = attr_ints(attrs, name) if name in attrs or name == "kernel" else (1, 1)
            fits = len(values) == 2 and all(1 <= v <= LARGEST for v in values)
            require(fits, op, f"the attribute {name} must be two numbers of 1 or more")
            return values[0], values[1]

        padding = attr_ints(attrs, "padding") if "padding" in attrs else (0, 0, 0, 0)
        require(len(padding) == 4, op, "the padding must be (top, bottom, left, right)")
        top, bottom, left, right = padding
        fits = min(top, left) >= 0 and (overhang or min(bottom, right) >= 0)
        fits = fits and max(map(abs, padding)) <= LARGEST
        require(fits, op, "the padding is negative or too large")
        return Window(pair("kernel"), pair("stride"), (top, bottom, left, right), pair("dilation"))

    @property
    def reach(self) -> tuple[int, int]:
        """Rows and columns that a window spans."""
        (kh, kw), (dh, dw) = self.kernel, self.dilation
        return dh * (kh - 1) + 1, dw * (kw - 1) + 1

    def padded(self, height: Size, width: Size) -> tuple[Size, Size]:
        top, bottom, left, right = self.padding
        return height + (top + bottom), width + (left + right)

    def output(self, op: str, height: Size, width: Size, ceil: bool = False) -> tuple[Size, Size]:
        """Rows and columns of the result; with ``ceil`` the last window may reach over the edge."""
        before = (self.padding[0], self.padding[2])
        sizes = []
        for axis, (size, padded) in enumerate(
            zip((height, width), self.padded(height, width), strict=True)
        ):
            rest, stride = padded - self.reach[axis], self.stride[axis]
            known = isinstance(rest, int)
            require(not known or rest >= 0, op, "the kernel is larger than the image")
            require(known or not ceil, op, "the image's size is symbolic, with ceil_mode")
            count = rest // stride + 1
            # One more, if it starts within the image or the padding before it.
            if ceil and rest % stride and count * stride < size + before[axis]:
                count += 1
            sizes.append(count)
        return sizes[0], sizes[1]

    def taps(self, x: Array, out: tuple[int, int], fill: float) -> Iterator[Array]:
        """For each place in the kernel, row by row: what all windows see there, [N, OH, OW, C]."""
        (dh, dw), (sh, sw), (top, _, left, _) = self.dilation, self.stride, self.padding
        need = [(out[i] - 1) * self.stride[i] + self.reach[i] for i in range(2)]
        _, height, width, _ = x.shape
        after = (max(0, need[0] - height - top), max(0, need[1] - width - left))
        padded = np.pad(
            x, ((0, 0), (top, after[0]), (left, after[1]), (0, 0)), constant_values=fill
        )
        for ky in range(self.kernel[0]):
            for kx in range(self.kernel[1]):
                rows = slice(ky * dh, ky * dh + (out[0] - 1) * sh + 1, sh)
                columns = slice(kx * dw, kx * dw + (out[1] - 1) * sw + 1, sw)
                yield padded[:, rows, columns]


def image_size(op: str, types: Types) -> tuple[Size, Size, int]:
    """Height, width and channels of the first input, [N, H, W, C]; all but C may be symbolic."""
    x = types[0]
    assert x
    require(len(x.shape) == 4, op, "x must be [N, H, W, C]", types)
    _, height, width, channels = x.shape
    require(isinstance(channels, int), op, "the channels are symbolic", types)
    assert isinstance(channels, int)
    return height, width, channels


def image_type(x: TensorType, size: tuple[Size, Size], channels: int) -> TensorType:
    return TensorType((x.shape[0], *size, channels), x.dtype)


def groups_of(op: str, attrs: Attrs, channels: int, outputs: int) -> int:
    groups = attr_int(attrs, "groups", 1)
    fits = groups >= 1 and channels % groups == 0 and outputs % groups == 0
    require(fits, op, f"{groups} groups do not divide {channels} and {outputs} channels")
    return groups
