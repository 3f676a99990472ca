"""Groups of weights that have a number added to them besides their scale, in plain numpy.

Checkpoints that come quantised have these forms; nothing is rounded to them at export. A weight is
``code * scale + offset``. The layout ``q4_min`` has the codes 0 to 15 and a minimum in 16 bits,
``q5_min`` the codes 0 to 31;
``q4_offset`` and ``q8_offset`` have codes about zero, and the offset in 32 bits, in which the
product of a scale and a whole zero point is exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

OFFSETS: dict[str, type[np.floating[Any]]] = {
    "q4_min": np.float16,
    "q4_offset": np.float32,
    "q8_offset": np.float32,
    "q5_min": np.float16,
}


@dataclass(frozen=True)
class QuantizedWeight:
    """Rows of a matrix as codes, and what the codes of each group of columns mean.

    ``codes`` is int8 [rows, cols], ``scales`` float16 [rows, groups], ``offsets`` None or a float
    [rows, groups] that is added.

    >>> rows = QuantizedWeight(np.array([[3, 1]]), np.array([[0.5]]), np.array([[-1.0]]))
    >>> rows.floats().tolist()
    [[0.5, -0.5]]
    """

    codes: Array
    scales: Array
    offsets: Array | None = None

    @property
    def parts(self) -> list[Array]:
        return [self.codes, self.scales, *([] if self.offsets is None else [self.offsets])]

    def floats(self) -> Array:
        """The weights that the codes stand for, in float32."""
        rows, cols = self.codes.shape
        groups = self.codes.reshape(rows, self.scales.shape[1], -1).astype(np.float32)
        weights: Array = groups * self.scales.astype(np.float32)[:, :, None]
        if self.offsets is not None:
            weights += self.offsets.astype(np.float32)[:, :, None]
        return weights.reshape(rows, cols)


@dataclass(frozen=True)
class CodedMatrix:
    """A matrix of a module that comes quantised: ``floats`` are ``codes * scales`` of each row."""

    floats: Array
    codes: Array  # int8 [rows, cols]
    scales: Array  # float32 [rows]


def zero_point_offsets(scales: Array, zeros: Array, middle: int) -> Array:
    """What is added to ``(code - middle) * scale`` to make it ``(code - zero) * scale``: exact.

    >>> zero_point_offsets(np.array([[0.5]], np.float16), np.array([[6]]), 8).tolist()
    [[1.0]]
    """
    offsets: Array = (middle - zeros.astype(np.float32)) * scales.astype(np.float32)
    return offsets


def quantize_affine(w: Array, layout: str, group: int) -> QuantizedWeight:
    """Weights in one of the layouts, from the smallest of each group to its largest.

    >>> rows = quantize_affine(np.array([[0.0, 15.0, 3.0, 1.0] * 2]), "q4_min", 8)
    >>> rows.codes.tolist(), rows.scales.tolist()
    ([[0, 15, 3, 1, 0, 15, 3, 1]], [[1.0]])
    """
    rows, cols = w.shape
    levels = {"q8_offset": 255, "q5_min": 31}.get(layout, 15)
    groups = np.ascontiguousarray(w, dtype=np.float32).reshape(rows, cols // group, group)
    low, high = groups.min(axis=2), groups.max(axis=2)
    scales = ((high - low) / np.float32(levels)).astype(np.float16)
    step = np.where(scales == 0, np.float32(1), scales.astype(np.float32))
    if layout in ("q4_min", "q5_min"):
        offsets = low.astype(np.float16)
        codes = np.rint((groups - offsets.astype(np.float32)[:, :, None]) / step[:, :, None])
        codes = np.clip(codes, 0, levels)
    else:
        middle = (levels + 1) // 2
        zeros = np.clip(np.rint(-low / step), 0, levels)
        offsets = zero_point_offsets(scales, zeros, middle)
        codes = np.clip(np.rint(groups / step[:, :, None]) + zeros[:, :, None], 0, levels) - middle
    return QuantizedWeight(codes.astype(np.int8).reshape(rows, cols), scales, offsets)
