"""Convolutions. Torch's images are channels-first and ours channels-last, so each one is put
between two transposes; the layout pass takes out those that meet.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from satchel.graph.ir import Value
from satchel.torch.lowering import Lowering
from satchel.torch.operators.registry import OperatorError, aten
from satchel.torch.operators.volume import (
    computed_convolution,
    depth_as_channels,
    spread_apart,
    triple,
)


def to_channels_last(low: Lowering, x: Value, spatial: int) -> Value:
    """[N, C, L] or [N, C, H, W] as [N, H, W, C], with H of 1 where there is none."""
    if spatial == 1:
        rows = low.transpose(x, (0, 2, 1))
        return low.reshape(rows, (rows.shape[0], 1, *rows.shape[1:]))
    return low.transpose(x, (0, 2, 3, 1))


def to_channels_first(low: Lowering, x: Value, spatial: int) -> Value:
    if spatial == 1:
        return low.transpose(low.reshape(x, (x.shape[0], *x.shape[2:])), (0, 2, 1))
    return low.transpose(x, (0, 3, 1, 2))


def both(values: int | Sequence[int], spatial: int, single: int) -> tuple[int, int]:
    """(height, width) of a setting that is given once, or for each dimension."""
    listed = [values] * spatial if isinstance(values, int) else list(values)
    listed = listed * spatial if len(listed) == 1 else listed
    return (single, listed[0]) if spatial == 1 else (listed[0], listed[1])


def convolve(
    low: Lowering,
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: int | Sequence[int],
    padding: int | Sequence[int] | str,
    dilation: int | Sequence[int],
    groups: int,
    output_padding: int | Sequence[int] | None = None,
) -> Value:
    """``padding`` is that of each dimension, or with constant weights those before, then after."""
    spatial = len(weight.shape) - 2
    if spatial not in (1, 2, 3):
        raise OperatorError(f"a convolution over {spatial} dimensions")
    batched = len(x.shape) == spatial + 2
    if not batched:
        x = low.reshape(x, (1, *x.shape))
    if spatial == 3:
        if output_padding is not None:
            edges = 0 if isinstance(padding, str) else padding
            x, weight = spread_apart(
                low, x, weight, stride, edges, dilation, groups, output_padding
            )
            stride, padding = 1, 0
        if padding == "same":
            x = _padded_to_keep_sizes(low, x, weight, triple(dilation))
        padding = 0 if isinstance(padding, str) else padding
        result = _over_depth(low, x, weight, bias, stride, padding, dilation, groups)
        return result if batched else low.reshape(result, result.shape[1:])
    if weight.constant is None or (bias is not None and bias.constant is None):
        result = _computed(low, x, weight, bias, stride, padding, dilation, groups, output_padding)
        return low.reshape(result, low.shape)
    array = weight.constant if spatial == 2 else weight.constant[:, :, None]
    transposed = output_padding is not None
    if transposed:  # [in, out / groups, kh, kw]
        parts = np.split(array, groups)
        array = np.concatenate([part.transpose(1, 0, 2, 3) for part in parts])
    outputs, _, kh, kw = array.shape
    rows = np.ascontiguousarray(array.transpose(0, 2, 3, 1)).reshape(outputs, -1)
    sizes = both(stride, spatial, 1), both(dilation, spatial, 1)
    before, after = _padding(padding, (kh, kw), sizes[1], spatial)
    if transposed:
        extra = both(output_padding or 0, spatial, 0)
        after = after[0] - extra[0], after[1] - extra[1]
    out = low.emit(
        "conv_transpose2d" if transposed else "conv2d",
        to_channels_last(low, x, spatial),
        low.constant(rows, weight.name),
        *([bias] if bias is not None else []),
        kernel=(kh, kw),
        stride=sizes[0],
        padding=(before[0], after[0], before[1], after[1]),
        dilation=sizes[1],
        groups=groups,
    )
    result = to_channels_first(low, out, spatial)
    return result if batched else low.reshape(result, result.shape[1:])


def _padded_to_keep_sizes(low: Lowering, x: Value, weight: Value, dilation: Sequence[int]) -> Value:
    taps = [low.known(k, "a kernel") for k in weight.shape[2:]]
    gaps = [*dilation] * (len(taps) if len(dilation) == 1 else 1)
    around = [g * (k - 1) for g, k in zip(gaps, taps, strict=True)]
    first = [0, 0, *(t // 2 for t in around)]
    return low.pad(x, first, [0, 0, *(t - t // 2 for t in around)], 0)


def _computed(
    low: Lowering,
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: int | Sequence[int],
    padding: int | Sequence[int] | str,
    dilation: int | Sequence[int],
    groups: int,
    output_padding: int | Sequence[int] | None,
) -> Value:
    """With a weight that is no constant."""
    spatial = len(weight.shape) - 2
    if padding == "same":
        gaps = [dilation] * spatial if isinstance(dilation, int) else dilation
        x = _padded_to_keep_sizes(low, x, weight, gaps)
    if spatial == 1:
        x = low.reshape(x, (*x.shape[:2], 1, x.shape[2]))
        weight = low.reshape(weight, (*weight.shape[:2], 1, weight.shape[2]))
    shape = [low.known(d, "convolution") for d in low.shape]
    if len(shape) == spatial + 1:
        shape = [1, *shape]
    if spatial == 1:
        shape = [*shape[:2], 1, shape[2]]
    return computed_convolution(
        low,
        x,
        weight,
        bias,
        both(stride, spatial, 1),
        both(0 if isinstance(padding, str) else padding, spatial, 0),
        both(dilation, spatial, 1),
        groups,
        output_padding is not None,
        (shape[0], shape[1], shape[2], shape[3]),
    )


def _over_depth(
    low: Lowering,
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: int | Sequence[int],
    padding: int | Sequence[int],
    dilation: int | Sequence[int],
    groups: int,
) -> Value:
    """Over depth, height and width: what a window sees along the depth is one image's channels."""
    steps, edges, gaps = triple(stride), triple(padding), triple(dilation)
    taps = low.known(weight.shape[2], "a depth")
    frames, count = depth_as_channels(low, x, taps, steps[0], edges[0], gaps[0])
    outputs, inputs = (low.known(d, "convolution") for d in weight.shape[:2])
    flat = low.reshape(weight, (outputs, inputs * taps, *weight.shape[3:]))
    batch = x.shape[0]
    *_, height, width = low.shape
    low.shape = (batch * count, outputs, height, width)
    made = convolve(low, frames, flat, bias, steps[1:], edges[1:], gaps[1:], groups)
    split = low.reshape(made, (batch, count, *made.shape[1:]))
    return low.transpose(split, (0, 2, 1, 3, 4))


def _padding(
    padding: int | Sequence[int] | str,
    kernel: tuple[int, int],
    dilation: tuple[int, int],
    spatial: int,
) -> tuple[tuple[int, int], tuple[int, int]]:
    """What is added before and after rows and columns."""
    if padding == "same":
        total = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
        before = total[0] // 2, total[1] // 2
        return before, (total[0] - before[0], total[1] - before[1])
    numbers = 0 if isinstance(padding, str) else padding  # "valid"
    if not isinstance(numbers, int) and len(numbers) == 2 * spatial:  # before, and then after
        return both(numbers[:spatial], spatial, 0), both(numbers[spatial:], spatial, 0)
    one = both(numbers, spatial, 0)
    return one, one


@aten("conv1d", "conv2d", "conv3d")
def conv(
    low: Lowering,
    x: Value,
    weight: Value,
    bias: Value | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] | str = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Value:
    return convolve(low, x, weight, bias, stride, padding, dilation, groups)


@aten("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def conv_transpose(
    low: Lowering,
    x: Value,
    weight: Value,
    bias: Value | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    output_padding: int | Sequence[int] = 0,
    groups: int = 1,
    dilation: int | Sequence[int] = 1,
) -> Value:
    return convolve(low, x, weight, bias, stride, padding, dilation, groups, output_padding)


@aten("convolution")
def convolution(
    low: Lowering,
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Value:
    extra = output_padding if transposed else None
    return convolve(low, x, weight, bias, stride, padding, dilation, groups, extra)
