"""Where the numbers of a matrix lie in tiles of 16 rows, in plain numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.encodings.steps import multiplied, runs_of

Array = NDArray[Any]

TILE_ROWS = 16
PLANE_ALIGNMENT = 64  # of the parts that the scales of a matrix have


def group_tiles(values: Array) -> Array:
    """One value for each group of each row, as bytes of tiles [cols/group][16]."""
    tiles = pad_rows(values).reshape(-1, TILE_ROWS, values.shape[1])
    return bytes_of(tiles.transpose(0, 2, 1))


def group_rows(tiles: Array, groups: int) -> Array:
    """The inverse of ``group_tiles``, with the rows that fill up the last tile."""
    rows: Array = tiles.reshape(-1, groups, TILE_ROWS).transpose(0, 2, 1).reshape(-1, groups)
    return rows


def tiles_of(rows: int) -> int:
    """How many tiles so many rows take."""
    return (rows + TILE_ROWS - 1) // TILE_ROWS


def aligned(size: int) -> int:
    """Where the next plane starts after so many bytes."""
    return -(-size // PLANE_ALIGNMENT) * PLANE_ALIGNMENT


def pad_rows(a: Array) -> Array:
    """With rows of zeros that fill up the last tile."""
    return np.pad(a, ((0, tiles_of(a.shape[0]) * TILE_ROWS - a.shape[0]), (0, 0)))


def bytes_of(a: Array) -> Array:
    """All bytes, in the order of the axes."""
    return np.ascontiguousarray(a).reshape(-1).view(np.uint8)


def pack_step_scales(multiples: Array, steps: Array, group: int) -> Array:
    """Multiples and steps of ``step_multiples`` as bytes: each run's steps, then its multiples."""
    tiles = tiles_of(len(multiples))
    parts = []
    for i, run in enumerate(runs_of(multiples.shape[1], group)):
        parts.append(group_tiles(steps[:, i : i + 1]).reshape(tiles, -1))
        parts.append(group_tiles(multiples[:, run]).reshape(tiles, -1))
    return bytes_of(np.concatenate(parts, axis=1))


def unpack_step_scales(scales: Array, cols: int, group: int) -> Array:
    """The scales (float16) ``[rows, groups]`` of these bytes, with the rows that fill up a tile."""
    runs = list(runs_of(cols // group, group))
    tiles = scales.view(np.uint8).reshape(-1, (cols // group + 4 * len(runs)) * TILE_ROWS)
    steps, multiples, at = [], [], 0
    for run in runs:
        middle = at + 4 * TILE_ROWS
        end = middle + (run.stop - run.start) * TILE_ROWS
        steps.append(group_rows(bytes_of(tiles[:, at:middle]).view(np.float32), 1))
        whole = bytes_of(tiles[:, middle:end]).view(np.int8)
        multiples.append(group_rows(whole, run.stop - run.start))
        at = end
    return multiplied(np.concatenate(multiples, axis=1), np.concatenate(steps, axis=1), group)
