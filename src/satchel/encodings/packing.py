"""Quantised numbers and packed layouts, in plain numpy.

This is the definition that the native packer and kernels are compared with; the layouts
themselves are described in ``native/kernels/kernels.h``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.encodings.k_quants import (
    PACKED_BITS,
    SUPERBLOCK_GROUPS,
    pack_bits,
    pack_superblock_scales,
    packed_columns,
    superblock_scale_bytes,
    unpack_bits,
    unpack_superblock_scales,
)
from satchel.encodings.steps import RUN_COLUMNS, multiplied, step_multiples, step_scales
from satchel.encodings.tiles import (
    TILE_ROWS,
    aligned,
    bytes_of,
    group_rows,
    group_tiles,
    pack_step_scales,
    pad_rows,
    tiles_of,
    unpack_step_scales,
)
from satchel.errors import RecipeError
from satchel.quantize.affine import OFFSETS, QuantizedWeight, quantize_affine
from satchel.quantize.blockwise import dequantize_blocks, quantize_blocks
from satchel.quantize.superblocks import (
    SUPERBLOCK,
    KeptRows,
    SuperblockWeight,
    quantize_superblocks,
)

Array = NDArray[Any]

_FLOATS: dict[str, type[np.floating[Any]]] = {"f32": np.float32, "f16": np.float16}
# Columns in a step of a tile, which a group is a multiple of; those with 4 have codes of 8 bits.
_QUANTIZED_UNIT = {
    "q4": 8,
    "q8": 4,
    "lpbq4": 8,
    "q4_min": 8,
    "q4_offset": 8,
    "q8_offset": 4,
    "q4_steps": 8,
    "q4_k": 8,
    **{layout: packed_columns(bits) for layout, bits in PACKED_BITS.items()},
}
_OFFSET = {
    "q4": 8,
    "q8": 128,
    "lpbq4": 8,
    "q4_min": 0,
    "q4_offset": 8,
    "q8_offset": 128,
    "q4_steps": 8,
    "q5": 16,
    "q5_min": 0,
    "q4_k": 0,
    "q5_k": 0,
    "q6_k": 32,
}
# The largest code of weights with so many bits.
_HIGHEST = {4: 7, 5: 15, 8: 127}
# The largest code of an activation. 16 bits are two digits of 8 to the base 255, each within ±127.
_LARGEST_ACTIVATION = {8: 127, 16: 127 * 255 + 127}


def quantize_groups(w: Array, bits: int, group: int) -> tuple[Array, Array]:
    """Codes (int8) and scales (float16) of weights ``[rows, cols]``, ``group`` columns a scale.

    Four bits: scales are whole multiples of a step, see ``steps``, and may be negative. Five and
    eight bits: the value of largest magnitude becomes ±15 or ±127.

    >>> codes, scales = quantize_groups(np.array([[4.0, -2.0, 1.0, 0.0] * 2]), 4, 8)
    >>> codes.tolist(), scales.tolist()
    ([[-8, 4, -2, 0, -8, 4, -2, 0]], [[-0.5]])
    """
    if bits not in (4, 5, 8):
        raise RecipeError(f"weights have 4, 5 or 8 bits, not {bits}", "Choose another recipe")
    rows, cols = w.shape
    _check_group(f"q{bits}", cols, group)
    groups = np.ascontiguousarray(w, dtype=np.float32).reshape(rows, cols // group, group)
    scales = plain_scales(groups, bits)
    return _codes(groups, scales, bits), scales


def quantize_steps(w: Array, group: int) -> tuple[Array, Array, Array]:
    """Codes (int8), multiples (int8) and steps (float32) of ``[rows, cols]``, as ``q4_steps``.

    >>> codes, multiples, steps = quantize_steps(np.array([[4.0, -2.0, 1.0, 0.0] * 2]), 8)
    >>> codes.tolist(), multiples.tolist(), steps.tolist()
    ([[-8, 4, -2, 0, -8, 4, -2, 0]], [[16]], [[-0.03125]])
    """
    rows, cols = w.shape
    _check_group("q4_steps", cols, group)
    groups = np.ascontiguousarray(w, dtype=np.float32).reshape(rows, cols // group, group)
    multiples, steps = step_multiples(groups)
    return _codes(groups, multiplied(multiples, steps, group), 4), multiples, steps


def _codes(groups: Array, scales: Array, bits: int) -> Array:
    """Codes of ``[rows, groups, columns]`` with these scales, as ``[rows, cols]``."""
    with np.errstate(all="ignore"):
        step = scales.astype(np.float32)[..., None]
        ratio = np.where(step == 0, np.float32(0), groups / step)
        highest = _HIGHEST[bits]
        lowest = -8 if bits == 4 else -highest
        codes: Array = np.clip(np.rint(ratio), lowest, highest).astype(np.int8)
    return codes.reshape(len(groups), -1)


def plain_scales(groups: Array, bits: int) -> Array:
    """The scales (float16) of ``[rows, groups, columns]`` by the weights alone."""
    if bits == 4:
        return step_scales(groups)
    with np.errstate(all="ignore"):
        scales: Array = (np.abs(groups).max(axis=2) / np.float32(_HIGHEST[bits])).astype(np.float16)
    return scales


def dequantize_groups(codes: Array, scales: Array) -> Array:
    """The float32 weights that codes and scales stand for.

    >>> dequantize_groups(np.array([[-8, 4]], np.int8), np.array([[-0.5]], np.float16)).tolist()
    [[4.0, -2.0]]
    """
    rows, cols = codes.shape
    grouped = codes.reshape(rows, scales.shape[1], -1).astype(np.float32)
    weights: Array = grouped * scales.astype(np.float32)[:, :, None]
    return weights.reshape(rows, cols)


def quantize_activations(x: Array, bits: int = 8) -> tuple[Array, Array]:
    """Codes (int8 or int16) and one scale per row (float32) of activations ``[..., cols]``.

    The largest magnitude of a row has the code 127, or 32512. A row of zeros, or one so small
    that 127 / absmax is not finite, has scale 0.

    >>> codes, scales = quantize_activations(np.array([[127.0, -63.5, 0.0]]))
    >>> codes.tolist(), scales.tolist()
    ([[127, -64, 0]], [1.0])
    """
    values = np.asarray(x, dtype=np.float32)
    most = np.float32(_LARGEST_ACTIVATION[bits])
    absmax = np.abs(values).max(axis=-1, keepdims=True)
    with np.errstate(all="ignore"):
        inverse = most / absmax
        zero = np.isposinf(inverse)
        codes = np.rint(values * np.where(zero, np.float32(0), inverse))
        scales = np.where(zero, np.float32(0), absmax / most)
        return codes.astype(f"int{bits}"), scales[..., 0]


def packed_sizes(encoding: str, rows: int, cols: int, group: int = 0) -> tuple[int, int]:
    """Bytes of codes and bytes of scales of a packed matrix.

    >>> packed_sizes("q4", 20, 64, 32)
    (1024, 128)
    """
    cells = tiles_of(rows) * TILE_ROWS * cols
    if encoding == "i8":
        padded = tiles_of(rows) * TILE_ROWS
        return padded * -(-cols // 4) * 4, padded * 4
    if encoding in _FLOATS:
        return cells * (4 if encoding == "f32" else 2), 0
    *first, last = scale_planes(encoding, rows, cols, group)
    bits = PACKED_BITS.get(encoding) or 32 // _QUANTIZED_UNIT[encoding]
    return cells * bits // 8, sum(map(aligned, first)) + last


def scale_planes(encoding: str, rows: int, cols: int, group: int) -> tuple[int, ...]:
    """Bytes of each plane of the scales: one of groups; then what else belongs to rows or groups.

    The weights of i8 have no scales, and the sums of their rows in this place.

    All but the last are filled up to a multiple of 64.

    >>> scale_planes("lpbq4", 20, 64, 32)
    (128, 128)
    """
    padded = tiles_of(rows) * TILE_ROWS
    if encoding == "i8":
        return (padded * 4,)
    _check_group(encoding, cols, group)
    groups = padded * (cols // group)
    if encoding in SUPERBLOCK_GROUPS:
        return (superblock_scale_bytes(encoding, rows, cols),)
    if encoding == "q4_steps":
        return (groups + padded * -(-cols // RUN_COLUMNS) * 4,)
    if encoding in OFFSETS:
        return groups * 2, groups * np.dtype(OFFSETS[encoding]).itemsize
    return (groups * 2, padded * 4) if encoding == "lpbq4" else (groups * 2,)


def split_planes(encoding: str, scales: Array, rows: int, cols: int, group: int) -> list[Array]:
    """The planes of packed scales, as bytes and without what fills them up."""
    data, planes, at = scales.reshape(-1).view(np.uint8), [], 0
    for size in scale_planes(encoding, rows, cols, group):
        planes.append(data[at : at + size])
        at = aligned(at + size)
    return planes


def pack_matrix(encoding: str, w: Array, group: int = 0) -> tuple[Array, Array]:
    """Weights ``[rows, cols]`` as packed bytes and fp16 scales (as uint16), both flat.

    >>> codes, scales = pack_matrix("q8", np.zeros((16, 32), np.float32), 32)
    >>> codes.shape, scales.shape, int(codes[0])
    ((512,), (16,), 128)
    """
    cols = w.shape[1]
    if encoding == "i8":
        return _pack_integers(w)
    if encoding in _FLOATS:
        with np.errstate(over="ignore"):
            tiles = pad_rows(w.astype(_FLOATS[encoding])).reshape(-1, TILE_ROWS, cols)
        return bytes_of(tiles.transpose(0, 2, 1)), np.zeros(0, np.uint16)
    _check_group(encoding, cols, group)
    if encoding == "lpbq4":
        return pack_blocks(*quantize_blocks(w, group))
    if encoding == "q4_steps":
        return pack_steps(*quantize_steps(w, group))
    if encoding in OFFSETS:
        return pack_quantized(encoding, quantize_affine(w, encoding, group))
    if encoding in SUPERBLOCK_GROUPS:
        return pack_quantized(encoding, quantize_superblocks(w, int(encoding[1]), group))
    return _pack(encoding, *quantize_groups(w, int(encoding[1]), group))


def pack_quantized(encoding: str, rows: KeptRows) -> tuple[Array, Array]:
    """Rows that are quantised already, packed as they are, in the form of ``pack_matrix``."""
    if isinstance(rows, SuperblockWeight):
        scales = pack_superblock_scales(rows)
        return _pack_codes(encoding, rows.codes), scales.view(np.uint16)
    offsets = None if rows.offsets is None else group_tiles(rows.offsets)
    return _pack(encoding, rows.codes, rows.scales, offsets)


def pack_blocks(codes: Array, scales: Array, factors: Array) -> tuple[Array, Array]:
    """Low-power blockwise weights that are quantised already, in the same form."""
    return _pack("lpbq4", codes, scales, bytes_of(pad_rows(factors[:, None])))


def pack_steps(codes: Array, multiples: Array, steps: Array) -> tuple[Array, Array]:
    """Codes, multiples and steps of ``quantize_steps``, in the same form."""
    scales = pack_step_scales(multiples, steps, codes.shape[1] // multiples.shape[1])
    return _pack_codes("q4_steps", codes), scales.view(np.uint16)


def _pack_codes(encoding: str, quantized: Array) -> Array:
    unit, offset = _QUANTIZED_UNIT[encoding], _OFFSET[encoding]
    codes = pad_rows(quantized).astype(np.int8).view(np.uint8) + np.uint8(offset)  # modulo 256
    if encoding in PACKED_BITS:
        return pack_bits(codes, PACKED_BITS[encoding])
    steps = codes.reshape(-1, TILE_ROWS, codes.shape[1] // unit, unit).transpose(0, 2, 1, 3)
    return bytes_of(steps[..., :4] | steps[..., 4:] << 4 if unit == 8 else steps)


def _pack(
    encoding: str, quantized: Array, scales: Array, second: Array | None = None
) -> tuple[Array, Array]:
    """``second`` is the plane after that of the scales, as bytes."""
    plane = group_tiles(scales.astype(np.float16))
    if second is not None:
        filling = np.zeros(aligned(plane.size) - plane.size, np.uint8)
        plane = np.concatenate([plane, filling, second])
    return _pack_codes(encoding, quantized), plane.view(np.uint16)


def unpack_matrix(
    encoding: str, codes: Array, scales: Array, rows: int, cols: int, group: int = 0
) -> Array:
    """The float32 weights ``[rows, cols]`` of a packed matrix: what every kernel computes with.

    >>> w = np.arange(64, dtype=np.float32).reshape(2, 32)
    >>> bool((unpack_matrix("f32", *pack_matrix("f32", w), 2, 32) == w).all())
    True
    """
    if encoding == "i8":
        steps = codes.view(np.int8).reshape(-1, -(-cols // 4), TILE_ROWS, 4)
        whole: Array = steps.transpose(0, 2, 1, 3).reshape(-1, -(-cols // 4) * 4)
        return np.ascontiguousarray(whole[:rows, :cols])
    if encoding in _FLOATS:
        columns: Array = codes.view(_FLOATS[encoding]).reshape(-1, cols, TILE_ROWS)
        weights: Array = columns.transpose(0, 2, 1).reshape(-1, cols)[:rows].astype(np.float32)
        return weights
    if encoding in SUPERBLOCK_GROUPS:
        numbers = unpack_superblock_scales(encoding, scales.reshape(-1).view(np.uint8), cols)
        whole_codes = _unpack_signed(encoding, codes, cols)
        return SuperblockWeight(whole_codes, *numbers).floats()[:rows]
    plain, *rest = split_planes(encoding, scales, rows, cols, group)
    unpacked = unpack_codes(encoding, codes, plain, rows, cols, group)
    if encoding == "lpbq4":
        return dequantize_blocks(*unpacked, rest[0].view(np.float32)[:rows])
    if encoding in OFFSETS:
        offsets = group_rows(rest[0].view(OFFSETS[encoding]), cols // group)[:rows]
        return QuantizedWeight(*unpacked, offsets).floats()
    return dequantize_groups(*unpacked)


def _pack_integers(w: Array) -> tuple[Array, Array]:
    """Whole numbers from -127 to 127 as they are, and the sum of each row."""
    codes = pad_rows(np.pad(w.astype(np.int8), ((0, 0), (0, -w.shape[1] % 4))))
    steps = codes.reshape(-1, TILE_ROWS, codes.shape[1] // 4, 4).transpose(0, 2, 1, 3)
    sums = codes.sum(axis=1, dtype=np.int32)
    return bytes_of(steps), sums.view(np.uint16)


def unpack_codes(
    encoding: str, codes: Array, scales: Array, rows: int, cols: int, group: int
) -> tuple[Array, Array]:
    """Codes (int8) ``[rows, cols]`` and scales (float16) ``[rows, cols / group]``."""
    _check_group(encoding, cols, group)
    signed = _unpack_signed(encoding, codes, cols)
    if encoding == "q4_steps":
        halves = unpack_step_scales(scales, cols, group)
    else:
        halves = group_rows(scales.view(np.float16), cols // group)
    return signed[:rows], halves[:rows]


def _unpack_signed(encoding: str, codes: Array, cols: int) -> Array:
    """Codes (int8) of the rows of whole tiles."""
    unit = _QUANTIZED_UNIT[encoding]
    if encoding in PACKED_BITS:
        found = unpack_bits(codes, cols, PACKED_BITS[encoding])
    else:
        steps = codes.reshape(-1, cols // unit, TILE_ROWS, 4)
        if unit == 8:
            steps = np.concatenate([steps & 15, steps >> 4], axis=-1)
        found = steps.transpose(0, 2, 1, 3).reshape(-1, cols)
    return (found.astype(np.int16) - _OFFSET[encoding]).astype(np.int8)


def _check_group(encoding: str, cols: int, group: int) -> None:
    unit = _QUANTIZED_UNIT.get(encoding)
    if unit is None:
        raise RecipeError(
            f"there is no matrix encoding {encoding!r}",
            f"Use one of {', '.join([*_FLOATS, *_QUANTIZED_UNIT, 'i8'])}",
        )
    if encoding in SUPERBLOCK_GROUPS and (
        group != SUPERBLOCK_GROUPS[encoding] or cols % SUPERBLOCK
    ):
        raise RecipeError(
            f"group size {group} does not fit {cols} columns in {encoding}",
            f"A group has {SUPERBLOCK_GROUPS[encoding]} columns, which {SUPERBLOCK} divides",
        )
    whole = cols if encoding != "q4_steps" else RUN_COLUMNS
    if group <= 0 or group % unit or cols % group or whole % group:
        raise RecipeError(
            f"group size {group} does not fit {cols} columns in {encoding}",
            f"A group is a multiple of {unit} and divides the columns"
            + (f" and {whole}" if whole != cols else ""),
        )
