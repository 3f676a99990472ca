"""K-quants, in plain numpy: groups whose scales are whole numbers times a step.

A *super-block* of 256 columns has one step of 16 bits for the scales of its groups, and one for
their minima where they have them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.quantize.affine import QuantizedWeight

Array = NDArray[Any]

SUPERBLOCK = 256  # columns


@dataclass(frozen=True)
class SuperblockWeight:
    """Rows of a matrix as codes, and whole numbers and steps that say what they mean.

    ``codes`` is int8 [rows, cols], ``multiples`` int8 [rows, groups], ``steps`` float16 [rows,
    super-blocks]; ``minima`` and ``minimum_steps`` are the same for what is taken off the weights
    of a group, or None.

    >>> codes = np.full((1, 256), 3, np.int8)
    >>> multiples, steps = np.full((1, 16), 2, np.int8), np.full((1, 1), 0.5, np.float16)
    >>> rows = SuperblockWeight(codes, multiples, steps)
    >>> float(rows.floats()[0, 0])
    3.0
    """

    codes: Array
    multiples: Array
    steps: Array
    minima: Array | None = None
    minimum_steps: Array | None = None

    @property
    def parts(self) -> list[Array]:
        if self.minima is None or self.minimum_steps is None:
            return [self.codes, self.multiples, self.steps]
        return [self.codes, self.multiples, self.steps, self.minima, self.minimum_steps]

    def plain(self) -> QuantizedWeight:
        """The same with products for scales and for what is added, which 32 bits hold exactly."""
        scales = _products(self.multiples, self.steps)
        if self.minima is None or self.minimum_steps is None:
            return QuantizedWeight(self.codes, scales)
        return QuantizedWeight(self.codes, scales, -_products(self.minima, self.minimum_steps))

    def floats(self) -> Array:
        """The weights that the codes stand for, in float32."""
        return self.plain().floats()


# Rows that come quantised from a checkpoint.
KeptRows = QuantizedWeight | SuperblockWeight


def _products(whole: Array, steps: Array) -> Array:
    rows, blocks = steps.shape
    groups = whole.reshape(rows, blocks, -1).astype(np.float32)
    products: Array = groups * steps.astype(np.float32)[:, :, None]
    return products.reshape(rows, -1)


def quantize_superblocks(w: Array, bits: int, group: int) -> SuperblockWeight:
    """Weights of 6 bits about zero, or of 4 or 5 from the smallest of each group on.

    >>> w = np.linspace(-1, 1, 512, dtype=np.float32).reshape(2, 256)
    >>> bool(np.abs(quantize_superblocks(w, 6, 16).floats() - w).max() < 0.05)
    True
    """
    rows, cols = w.shape
    blocks = cols // SUPERBLOCK
    groups = np.ascontiguousarray(w, dtype=np.float32).reshape(rows, cols // group, group)
    if bits == 6:
        multiples, steps = _whole(np.abs(groups).max(axis=2) / np.float32(31), 127, blocks)
        scales = _products(multiples, steps)[:, :, None]
        codes = np.clip(np.rint(groups / np.where(scales == 0, 1, scales)), -32, 31)
        return SuperblockWeight(codes.astype(np.int8).reshape(rows, cols), multiples, steps)
    least, levels = np.minimum(groups.min(axis=2), 0), (1 << bits) - 1
    multiples, steps = _whole((groups.max(axis=2) - least) / np.float32(levels), 63, blocks)
    minima, minimum_steps = _whole(-least, 63, blocks)
    scales = _products(multiples, steps)[:, :, None]
    added = groups + _products(minima, minimum_steps)[:, :, None]
    codes = np.clip(np.rint(added / np.where(scales == 0, 1, scales)), 0, levels)
    whole = codes.astype(np.int8).reshape(rows, cols)
    return SuperblockWeight(whole, multiples, steps, minima, minimum_steps)


def _whole(numbers: Array, most: int, blocks: int) -> tuple[Array, Array]:
    """Whole numbers and steps of each super-block for [rows, groups] numbers of zero or more."""
    by_block = numbers.reshape(len(numbers), blocks, -1)
    steps = (by_block.max(axis=2) / np.float32(most)).astype(np.float16)
    divisor = np.where(steps == 0, np.float32(1), steps.astype(np.float32))[:, :, None]
    whole = np.clip(np.rint(by_block / divisor), 0, most).astype(np.int8)
    return whole.reshape(numbers.shape), steps
