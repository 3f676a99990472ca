"""Low-power blockwise weights (LPBQ), in plain numpy: what the native packer is compared with.

A weight is ``code * block scale * row factor``: codes have 4 bits, a block's scale is a whole
number from 1 to 16, and a row (an output channel) has one float. Code times block scale fits in
8 bits, so that hardware with 8-bit weights and one scale per channel can run it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

LARGEST_SCALE = 16
_LOWEST, _HIGHEST = -8, 7
_AT_ONCE = 4  # the lanes in which squared errors are added up


def quantize_blocks(w: Array, block: int) -> tuple[Array, Array, Array]:
    """Codes (int8), block scales (uint8) and row factors (float32) of ``[rows, cols]``.

    The row's largest block gets the scale 16; the others the whole number, of those near what
    their largest weight needs, that has the least squared error.

    >>> codes, scales, factors = quantize_blocks(np.array([[-8.0] * 8 + [3.5] * 8]), 8)
    >>> codes.tolist()[0][::8], scales.tolist(), factors.tolist()
    ([-8, 7], [[16, 8]], [0.0625])
    """
    rows, cols = w.shape
    blocks = np.ascontiguousarray(w, dtype=np.float32).reshape(rows, cols // block, block)
    needed = needed_scales(blocks)
    factors = np.abs(needed.max(axis=1)) / np.float32(LARGEST_SCALE)  # a zero has no sign
    factor = factors[:, None]
    with np.errstate(all="ignore"):
        ratio = np.where(factor == 0, np.float32(1), needed / factor)
        whole = np.ceil(ratio)
        best, scales = np.full(whole.shape, np.inf), np.ones(whole.shape, np.float32)
        for off in (-3, -2, -1, 0, 1):
            tried = np.clip(whole + np.float32(off), 1, LARGEST_SCALE).astype(np.float32)
            error = _squared_error(blocks, tried, factor)
            better = error < best
            scales, best = np.where(better, tried, scales), np.where(better, error, best)
        scales = np.where(factor == 0, np.float32(1), scales)
        codes = _codes(blocks, scales, factor).astype(np.int8)
    return codes.reshape(rows, cols), scales.astype(np.uint8), factors


def needed_scales(blocks: Array) -> Array:
    """The step that the largest weight of each of ``[rows, blocks, columns]`` needs."""
    needed: Array = np.maximum(
        blocks.max(axis=2) / np.float32(7), blocks.min(axis=2) / np.float32(-8)
    )
    return needed


def dequantize_blocks(codes: Array, scales: Array, factors: Array) -> Array:
    """The float32 weights that codes, block scales and row factors stand for.

    >>> block = np.array([[-8, 7]], np.int8), np.array([[16]]), np.array([0.5], np.float32)
    >>> dequantize_blocks(*block).tolist()
    [[-64.0, 56.0]]
    """
    rows, cols = codes.shape
    blocks = codes.reshape(rows, scales.shape[1], -1).astype(np.float32)
    weights: Array = blocks * scales.astype(np.float32)[:, :, None] * factors[:, None, None]
    return weights.reshape(rows, cols)


def _codes(blocks: Array, scales: Array, factor: Array) -> Array:
    step = (scales * factor)[:, :, None]
    ratio = np.where(step == 0, np.float32(0), blocks / step)
    codes: Array = np.rint(np.clip(ratio, _LOWEST, _HIGHEST))
    return codes


def _squared_error(blocks: Array, scales: Array, factor: Array) -> Array:
    """Of each block, added up in the order of the native packer: ties must fall alike."""
    meant = _codes(blocks, scales, factor) * scales[:, :, None] * factor[:, :, None]
    return sum_of_groups((blocks.astype(np.float64) - meant.astype(np.float64)) ** 2)


def sum_of_groups(numbers: Array) -> Array:
    """Of ``[rows, groups, columns]`` in float64, in the order in which the native packer adds."""
    lanes = numbers.reshape(*numbers.shape[:2], -1, _AT_ONCE)
    total = np.zeros((*numbers.shape[:2], _AT_ONCE))
    for i in range(lanes.shape[2]):
        total += lanes[:, :, i]
    sums: Array = (total[..., 0] + total[..., 1]) + (total[..., 2] + total[..., 3])
    return sums
