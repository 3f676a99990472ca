"""Where weights of 5 and 6 bits, and the scales of K-quants, lie in tiles of 16 rows, in numpy.

``native/kernels/kernels.h`` describes the same for the kernels.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.encodings.tiles import TILE_ROWS, bytes_of, group_rows, group_tiles, pad_rows, tiles_of
from satchel.quantize.superblocks import SUPERBLOCK, SuperblockWeight

Array = NDArray[Any]

# Bits of the codes that do not fill bytes or nibbles.
PACKED_BITS = {"q5": 5, "q5_min": 5, "q5_k": 5, "q6_k": 6}
# By layout: the columns of a group, and the bytes of a super-block's scales in a row.
SUPERBLOCK_GROUPS = {"q4_k": 32, "q5_k": 32, "q6_k": 16}
_SCALE_BYTES = {"q4_k": 16, "q5_k": 16, "q6_k": 18}


def packed_columns(bits: int) -> int:
    """Columns of a step of a tile: fours of them fill 64-byte lines.

    >>> packed_columns(6), packed_columns(5)
    (16, 32)
    """
    return 32 // math.gcd(bits, 8)


def pack_bits(codes: Array, bits: int) -> Array:
    """Codes from zero on (uint8 [rows of whole tiles, cols]) in lines of 64 bytes.

    The first fours of columns have the lower bits of a line each, and the others what is left of
    all lines, one behind the other.
    """
    columns = packed_columns(bits)
    steps = codes.reshape(-1, TILE_ROWS, codes.shape[1] // columns, columns // 4, 4)
    fours = steps.transpose(0, 2, 3, 1, 4)
    count = fours.shape[2] * bits // 8
    lines, rest = fours[:, :, :count].copy(), fours[:, :, count:]
    for at, (line, place) in enumerate(_spare_bits(bits)):
        lines[:, :, line] |= (rest[:, :, at // bits] >> at % bits & 1) << place
    return bytes_of(lines)


def unpack_bits(packed: Array, cols: int, bits: int) -> Array:
    """The inverse of ``pack_bits``."""
    columns = packed_columns(bits)
    lines = packed.reshape(-1, cols // columns, columns * bits // 32, TILE_ROWS, 4)
    whole, count = columns // 4, lines.shape[2]
    fours = np.zeros((*lines.shape[:2], whole, TILE_ROWS, 4), np.uint8)
    fours[:, :, :count] = lines & np.uint8((1 << bits) - 1)
    for at, (line, place) in enumerate(_spare_bits(bits)):
        fours[:, :, count + at // bits] |= (lines[:, :, line] >> place & 1) << at % bits
    codes: Array = fours.transpose(0, 3, 1, 2, 4).reshape(-1, cols)
    return codes


def _spare_bits(bits: int) -> list[tuple[int, int]]:
    """Line and place of the bits that are left beside the lines' own codes, in their order."""
    lines = packed_columns(bits) * bits // 32
    return [(line, place) for line in range(lines) for place in range(bits, 8)]


def superblock_scale_bytes(layout: str, rows: int, cols: int) -> int:
    """
    >>> superblock_scale_bytes("q6_k", 16, 256)
    288
    """
    return tiles_of(rows) * TILE_ROWS * (cols // SUPERBLOCK) * _SCALE_BYTES[layout]


def pack_superblock_scales(weight: SuperblockWeight) -> Array:
    """What the scales of rows lie as: by tile and super-block, steps and then whole numbers."""
    blocks = weight.steps.shape[1]
    parts = [_by_block(weight.steps, blocks)]
    if weight.minima is None or weight.minimum_steps is None:
        parts.append(_by_block(weight.multiples, blocks))
    else:
        parts.append(_by_block(weight.minimum_steps, blocks))
        parts.append(_six_bits(weight.multiples, weight.minima, blocks))
    return bytes_of(np.concatenate(parts, axis=2))


def unpack_superblock_scales(layout: str, scales: Array, cols: int) -> list[Array]:
    """Multiples, steps, and those of minima where there are any, of the rows of whole tiles."""
    blocks = cols // SUPERBLOCK
    tiles = scales.reshape(-1, blocks, _SCALE_BYTES[layout] * TILE_ROWS)
    size = TILE_ROWS * 2
    steps = _rows_of(tiles[:, :, :size], np.float16)
    if layout == "q6_k":
        return [_rows_of(tiles[:, :, size:], np.int8), steps]
    minimum_steps = _rows_of(tiles[:, :, size : 2 * size], np.float16)
    lines = tiles[:, :, 2 * size :].reshape(*tiles.shape[:2], 3, 4 * TILE_ROWS)
    low, least, upper = lines[:, :, 0], lines[:, :, 1], lines[:, :, 2]
    whole = [
        np.concatenate([part & 15 | above << 4 & 48, part >> 4 | above << 2 & 48], axis=2)
        for part, above in ((low, upper), (least, upper >> 4))
    ]
    return [_rows_of(whole[0], np.int8), steps, _rows_of(whole[1], np.int8), minimum_steps]


def _by_block(values: Array, blocks: int) -> Array:
    """Numbers of groups or super-blocks as bytes [tiles, blocks, bytes]."""
    tiles = group_tiles(values)
    return tiles.reshape(tiles_of(len(values)), blocks, -1)


def _rows_of(data: Array, dtype: type[np.generic]) -> Array:
    """The inverse of ``_by_block``: [rows, groups]."""
    numbers = bytes_of(data).view(dtype)
    return group_rows(numbers, numbers.size // (len(data) * TILE_ROWS))


def _six_bits(scales: Array, minima: Array, blocks: int) -> Array:
    """Eight scales and eight minima in three lines: the lower bits of each, the upper of both."""

    def halves(whole: Array) -> tuple[Array, Array]:
        tiles = pad_rows(whole).astype(np.uint8).reshape(-1, TILE_ROWS, blocks, 8)
        by_group = tiles.transpose(0, 2, 3, 1).reshape(len(tiles), blocks, 8 * TILE_ROWS)
        return by_group[:, :, : 4 * TILE_ROWS], by_group[:, :, 4 * TILE_ROWS :]

    (first, second), (least, rest) = halves(scales), halves(minima)
    upper = first >> 4 | second >> 4 << 2 | least >> 4 << 4 | rest >> 4 << 6
    return np.concatenate([first & 15 | second << 4, least & 15 | rest << 4, upper], axis=2)
