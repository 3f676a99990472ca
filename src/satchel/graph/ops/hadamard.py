"""The Walsh-Hadamard transform, in blocks: spreads every value evenly over its block."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.graph.ops.registry import Arrays, Attrs, Types, define, require
from satchel.graph.types import DType, TensorType, attr_int

Array = NDArray[Any]


@define("hadamard", 1, "block")
class Hadamard:
    """Each ``block`` of the last dimension times a Hadamard matrix over the root of its size.

    A block is a power of two. The matrix (Sylvester's) is symmetric and its own inverse.
    """

    @staticmethod
    def types(types: Types, attrs: Attrs) -> list[TensorType]:
        (x,) = types
        assert x
        require(x.dtype == DType.f32 and len(x.shape) >= 1, "hadamard", "x must be f32", types)
        block, last = attr_int(attrs, "block"), x.shape[-1]
        power = block >= 1 and block & (block - 1) == 0
        require(power, "hadamard", f"a block of {block} is no power of two", types)
        fits = isinstance(last, int) and last % block == 0
        require(fits, "hadamard", f"blocks of {block} do not fit", types)
        return [x]

    @staticmethod
    def run(arrays: Arrays, attrs: Attrs) -> list[Array]:
        return [transform(arrays[0], attr_int(attrs, "block"))]


def transform(x: Array, block: int) -> Array:
    """
    >>> transform(np.array([1.0, 0.0, 0.0, 0.0]), 4).tolist()
    [0.5, 0.5, 0.5, 0.5]
    """
    out = x.astype(np.float64).reshape(-1, block)
    half = 1
    while half < block:
        pairs = out.reshape(len(out), -1, 2, half)
        sums, differences = pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]
        out = np.stack([sums, differences], axis=2).reshape(-1, block)
        half *= 2
    result: Array = (out / np.sqrt(block)).reshape(x.shape).astype(np.float32)
    return result
