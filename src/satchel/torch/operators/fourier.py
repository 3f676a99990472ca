"""Fourier transforms as products with matrices.

Norms are 0: none, 1: by the root of the size, 2: by the size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from satchel.graph.ir import Value
from satchel.torch.lowering import Lowering, axis_of
from satchel.torch.operators.complex_numbers import Pair, paired
from satchel.torch.operators.pool import mix_axis
from satchel.torch.operators.registry import OperatorError


def _scale(sizes: Sequence[int], norm: int) -> float:
    count = float(np.prod(sizes))
    return (1.0, 1 / math.sqrt(count), 1 / count)[norm]


def _angles(rows: int, size: int) -> Any:
    """2 pi times row times column over the size, with the product taken modulo the size."""
    turns = np.outer(np.arange(rows), np.arange(size)) % size
    return 2 * np.pi * turns / size


def _transform(low: Lowering, x: Pair, axis: int, inverse: bool, scale: float) -> Pair:
    size = low.known(x.shape[axis], "a Fourier transform")
    turns = _angles(size, size)
    cos = (np.cos(turns) * scale).astype(np.float32)
    sin = (np.sin(turns) * scale * (1 if inverse else -1)).astype(np.float32)

    def mixed(part: Value, matrix: Any) -> Value:
        return mix_axis(low, part, matrix, axis)

    real = low.sub(mixed(x.real, cos), mixed(x.imaginary, sin))
    return Pair(real, low.add(mixed(x.real, sin), mixed(x.imaginary, cos)))


def _sizes(low: Lowering, x: Any, axes: Sequence[int]) -> list[int]:
    return [low.known(x.shape[axis], "a Fourier transform") for axis in axes]


@paired("_fft_c2c")
def transform(low: Lowering, x: Pair, dims: Sequence[int], norm: int, forward: bool) -> Pair:
    axes = [axis_of(d, len(x.shape)) for d in dims]
    scale = _scale(_sizes(low, x, axes), norm)
    for place, axis in enumerate(axes):
        x = _transform(low, x, axis, not forward, scale if place == 0 else 1.0)
    return x


@paired("_fft_r2c")
def transform_real(low: Lowering, x: Value, dims: Sequence[int], norm: int, onesided: bool) -> Pair:
    axes = [axis_of(d, len(x.shape)) for d in dims]
    scale = _scale(_sizes(low, x, axes), norm)
    last = axes[-1]
    size = low.known(x.shape[last], "a Fourier transform")
    turns = _angles(size // 2 + 1 if onesided else size, size)
    found = Pair(
        mix_axis(low, x, (np.cos(turns) * scale).astype(np.float32), last),
        mix_axis(low, x, (-np.sin(turns) * scale).astype(np.float32), last),
    )
    for axis in axes[:-1]:
        found = _transform(low, found, axis, False, 1.0)
    return found


@paired("_fft_c2r")
def transform_to_real(
    low: Lowering, x: Pair, dims: Sequence[int], norm: int, last_size: int
) -> Value:
    """The inverse; of the last axis the half that is left out mirrors the other."""
    axes = [axis_of(d, len(x.shape)) for d in dims]
    size = low.known(last_size, "a Fourier transform")
    scale = _scale([*_sizes(low, x, axes[:-1]), size], norm)
    for axis in axes[:-1]:
        x = _transform(low, x, axis, True, 1.0)
    last = axes[-1]
    half = size // 2 + 1
    have = low.known(x.shape[last], "a Fourier transform")
    if have != half:
        raise OperatorError(f"an inverse transform to {size} numbers from {have}")
    turns = _angles(size, size)[:, :half]
    twice = np.where((np.arange(half) == 0) | (2 * np.arange(half) == size), 1.0, 2.0) * scale
    cos, sin = ((f(turns) * twice).astype(np.float32) for f in (np.cos, np.sin))
    return low.sub(mix_axis(low, x.real, cos, last), mix_axis(low, x.imaginary, sin, last))
