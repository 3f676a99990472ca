"""Palettes: every weight is one of 16 numbers, which 16 rows of a matrix have for themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.backends.weight_rows import Bytes, tiles_of_halves
from satchel.runtime.program import Program

Array = NDArray[Any]
ROWS, COLOURS = 16, 16  # rows that share a palette, and its numbers
_ROUNDS = 12


def palette_of(numbers: Array) -> Array:
    """16 numbers (float16, rising) near which these lie, by k-means.

    >>> palette_of(np.repeat(np.arange(16.0), 4)).tolist() == list(range(16))
    True
    """
    ordered = np.sort(numbers.astype(np.float64), axis=None)
    sums = np.concatenate([[0.0], np.cumsum(ordered)])
    places = (np.arange(COLOURS) + 0.5) / COLOURS * ordered.size
    centres = ordered[places.astype(np.int64)]
    # Between where as many lie in each and where all steps are alike: tails count too.
    even = np.linspace(ordered[0], ordered[-1], 2 * COLOURS + 1)[1::2]
    centres = np.sort((centres + even) / 2)
    for _ in range(_ROUNDS):
        ends = np.searchsorted(ordered, (centres[1:] + centres[:-1]) / 2)
        ends = np.concatenate([[0], ends, [ordered.size]])
        counts = np.diff(ends)
        means = np.diff(sums[ends]) / np.maximum(counts, 1)
        centres = np.where(counts > 0, means, centres)
    result: Array = centres.astype(np.float16)
    return result


def palette_rows(name: str, shape: tuple[int, int]) -> tuple[Bytes, Bytes]:
    """Indices of 4 bits, two columns in a byte, the first one below; and the palettes after them.

    The second are what was found when the first were made.
    """
    rows, cols = shape
    found: list[Array] = []

    def indices(program: Program | None) -> Iterator[memoryview]:
        found.clear()
        for tile in tiles_of_halves(program, name, cols):  # [16, cols]
            palette = palette_of(tile)
            found.append(palette)
            middles = (palette[1:].astype(np.float32) + palette[:-1].astype(np.float32)) / 2
            nearest = np.searchsorted(middles, tile.astype(np.float32)).astype(np.uint8)
            yield (nearest[:, ::2] | nearest[:, 1::2] << 4).reshape(-1).data

    def palettes(_: Program | None) -> Iterator[bytes]:
        yield np.stack(found).tobytes()

    return Bytes(rows * cols // 2, indices), Bytes(rows // ROWS * COLOURS * 2, palettes)
