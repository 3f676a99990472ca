"""Convolution with a weight that is computed, and images that have a depth."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from satchel.graph.ir import Value
from satchel.torch.lowering import Lowering
from satchel.torch.operators.registry import OperatorError
from satchel.torch.operators.window import window_places


def computed_convolution(
    low: Lowering,
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int],
    groups: int,
    transposed: bool,
    shape: tuple[int, int, int, int],
) -> Value:
    """x and weight [.., .., height, width]: the windows written out, and a product of matrices."""
    batch, channels, height, width = (low.known(d, "convolution") for d in x.shape)
    kernel = [low.known(d, "convolution") for d in weight.shape[2:]]
    taps, outputs = kernel[0] * kernel[1], shape[1]
    size = shape[2:] if transposed else (height, width)
    places = window_places(size, kernel, dilation, padding, stride)
    windows = places.shape[1]
    if transposed:
        if windows != height * width:
            raise OperatorError("a transposed convolution with such an output_padding")
        each = channels // groups
        rows = low.reshape(weight, (1, groups, each, outputs // groups * taps))
        spread = low.matmul(
            low.transpose(rows, (0, 1, 3, 2)), low.reshape(x, (batch, groups, each, windows))
        )
        inside = np.flatnonzero(places.reshape(-1) >= 0)
        flat = low.take(low.reshape(spread, (batch * outputs, taps * windows)), inside, 1)
        numbers = np.tile(places.reshape(-1)[inside].astype(np.int32), (batch * outputs, 1))
        zeros = low.constant(np.zeros((batch * outputs, size[0] * size[1]), np.float32), "zeros")
        made = low.scatter(zeros, low.constant(numbers, "places"), flat, axis=1, kind="add")
    else:
        flat = low.reshape(x, (batch * channels, height * width))
        if (places < 0).any():  # what lies outside is the zero behind the last pixel
            flat = low.pad(flat, (0, 0), (0, 1), 0)
        numbers = np.where(places < 0, height * width, places).reshape(-1)
        inner = channels // groups * taps
        seen = low.reshape(low.take(flat, numbers, 1), (batch, groups, inner, windows))
        made = low.matmul(low.reshape(weight, (1, groups, outputs // groups, inner)), seen)
    result = low.reshape(made, shape)
    return result if bias is None else low.add(result, low.reshape(bias, (1, outputs, 1, 1)))


def depth_as_channels(
    low: Lowering, x: Value, taps: int, stride: int, padding: int, dilation: int
) -> tuple[Value, int]:
    """[N, C, D, H, W] as [N * windows, C * taps, H, W]: all that a window along the depth sees."""
    batch = x.shape[0]
    channels, depth, height, width = (low.known(d, "a depth") for d in x.shape[1:])
    x = low.pad(x, (0, 0, padding, 0, 0), (0, 0, padding, 0, 0), 0)
    count = (depth + 2 * padding - dilation * (taps - 1) - 1) // stride + 1
    places = np.arange(count)[:, None] * stride + np.arange(taps) * dilation
    taken = low.take(x, places.reshape(-1), 2)
    split = low.reshape(taken, (batch, channels, count, taps, height, width))
    transposed = low.transpose(split, (0, 2, 1, 3, 4, 5))
    return low.reshape(transposed, (batch * count, channels * taps, height, width)), count


def spread_apart(
    low: Lowering,
    x: Value,
    weight: Value,
    stride: int | Sequence[int],
    padding: int | Sequence[int],
    dilation: int | Sequence[int],
    groups: int,
    output_padding: int | Sequence[int],
) -> tuple[Value, Value]:
    """A transposed convolution over 3 dimensions as a plain one: zeros between the pixels and
    around them, and the kernel [in, out / groups, …] turned around."""
    settings = map(triple, (stride, padding, dilation, output_padding))
    for axis, (step, edge, gap, extra) in enumerate(zip(*settings, strict=True), 2):
        size = low.known(x.shape[axis], "a transposed convolution")
        single = low.reshape(x, (*x.shape[: axis + 1], 1, *x.shape[axis + 1 :]))
        after = [step - 1 if i == axis + 1 else 0 for i in range(6)]
        apart = low.pad(single, [0] * 6, after, 0)
        joined = low.reshape(apart, (*x.shape[:axis], size * step, *x.shape[axis + 1 :]))
        taps = low.known(weight.shape[axis], "a kernel")
        around = gap * (taps - 1) - edge
        first, last = ([n if i == axis else 0 for i in range(5)] for n in (around, around + extra))
        x = low.pad(low.slice(joined, axis, 0, (size - 1) * step + 1), first, last, 0)
        weight = low.take(weight, np.arange(taps)[::-1], axis)
    inputs, outputs, *kernel = (low.known(d, "a kernel") for d in weight.shape)
    parts = low.reshape(weight, (groups, inputs // groups, outputs, *kernel))
    turned = low.transpose(parts, (0, 2, 1, 3, 4, 5))
    return x, low.reshape(turned, (groups * outputs, inputs // groups, *kernel))


def triple(values: int | Sequence[int]) -> list[int]:
    listed = [values] if isinstance(values, int) else list(values)
    return listed * 3 if len(listed) == 1 else listed
