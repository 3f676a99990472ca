"""The codes and scales in GGUF's quantised blocks, and the encodings that hold them.

Codes are always the file's own. Scales are too where a block has one of 16 bits, and those of Q4_K,
Q5_K and Q6_K, which are whole numbers times a step of 16 bits, are stored as such. Those of the
other K-quants are such products too, which come here exactly, in 32 bits, and are stored in 16.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.encodings.encoding import Encoding
from satchel.quantize.affine import QuantizedWeight
from satchel.quantize.superblocks import KeptRows, SuperblockWeight

Array = NDArray[Any]
Split = Callable[[NDArray[np.uint8]], KeptRows]

# What the 16 codes of IQ4_NL and IQ4_XS stand for: finer steps near zero.
_NONLINEAR = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int8
)


def _parts(raw: Array, *sizes: int) -> list[Array]:
    """The parts of every block, each [rows, blocks, size]."""
    blocks = raw.reshape(len(raw), -1, sum(sizes))
    return np.split(blocks, np.cumsum(sizes)[:-1], axis=2)


def _halves(part: Array) -> Array:
    """[rows, blocks, 2 bytes] -> [rows, blocks]"""
    return np.ascontiguousarray(part).view("<f2")[:, :, 0].astype(np.float16)


def _nibbles(part: Array) -> Array:
    """The codes of a block of 32: all low halves of its bytes, then all high ones."""
    return np.concatenate([part & 15, part >> 4], axis=-1)


def _planes(part: Array, bits: int, run: int) -> Array:
    """Codes of so many bits: of each run of bytes first all lowest ones, then the next.

    [rows, blocks, bytes] -> [rows, blocks, bytes * 8 / bits]
    """
    runs = part.reshape(*part.shape[:2], -1, 1, run)
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    codes: Array = (runs >> shifts) & np.uint8((1 << bits) - 1)
    return codes.reshape(*part.shape[:2], -1)


def _rows(codes: Array, scales: Array, offsets: Array | None = None) -> QuantizedWeight:
    """[rows, blocks, …] -> [rows, …]"""
    rows = len(codes)
    added = None if offsets is None else offsets.reshape(rows, -1)
    return QuantizedWeight(codes.reshape(rows, -1).astype(np.int8), scales.reshape(rows, -1), added)


def _q4_0(raw: Array) -> QuantizedWeight:
    scales, codes = _parts(raw, 2, 16)
    return _rows(_nibbles(codes).view(np.int8) - np.int8(8), _halves(scales))


def _q4_1(raw: Array) -> QuantizedWeight:
    scales, minima, codes = _parts(raw, 2, 2, 16)
    return _rows(_nibbles(codes), _halves(scales), _halves(minima))


def _q8_0(raw: Array) -> QuantizedWeight:
    scales, codes = _parts(raw, 2, 32)
    return _rows(codes.view(np.int8), _halves(scales))


def _iq4_nl(raw: Array) -> QuantizedWeight:
    scales, codes = _parts(raw, 2, 16)
    return _rows(_NONLINEAR[_nibbles(codes)], _halves(scales))


def _with_fifth(codes: Array, fifth: Array) -> Array:
    """Codes of 4 bits and their fifth ones, as bits of 4 bytes in a row."""
    bits = np.unpackbits(fifth, axis=2, bitorder="little")
    five: Array = _nibbles(codes) | bits << np.uint8(4)
    return five


def _q5_0(raw: Array) -> QuantizedWeight:
    scales, fifth, codes = _parts(raw, 2, 4, 16)
    return _rows(_with_fifth(codes, fifth).view(np.int8) - np.int8(16), _halves(scales))


def _q5_1(raw: Array) -> QuantizedWeight:
    scales, minima, fifth, codes = _parts(raw, 2, 2, 4, 16)
    return _rows(_with_fifth(codes, fifth), _halves(scales), _halves(minima))


def _products(block: Array, whole: Array) -> Array:
    """Scales of groups: their block's, of 16 bits, times whole numbers. Exact in 32 bits."""
    products: Array = _halves(block).astype(np.float32)[:, :, None] * whole.astype(np.float32)
    return products


def _six_bits(packed: Array) -> tuple[Array, Array]:
    """Eight scales and eight minima of 6 bits, in 12 bytes."""
    low, high, mixed = packed[..., :4], packed[..., 4:8], packed[..., 8:]
    scales = np.concatenate([low & 63, (mixed & 15) | low >> 6 << 4], axis=-1)
    minima = np.concatenate([high & 63, mixed >> 4 | high >> 6 << 4], axis=-1)
    return scales, minima


def _superblocks(codes: Array, multiples: Array, steps: Array, *minima: Array) -> SuperblockWeight:
    """[rows, blocks, …] -> [rows, …]; steps are the two bytes of each block."""
    rows = len(codes)
    numbers = [multiples.view(np.int8).reshape(rows, -1), _halves(steps)]
    if minima:
        numbers += [minima[0].view(np.int8).reshape(rows, -1), _halves(minima[1])]
    return SuperblockWeight(codes.reshape(rows, -1).astype(np.int8), *numbers)


def _q4_k(raw: Array) -> SuperblockWeight:
    block, least, packed, codes = _parts(raw, 2, 2, 12, 128)
    scales, minima = _six_bits(packed)
    return _superblocks(_planes(codes, 4, 32), scales, block, minima, least)


def _q5_k(raw: Array) -> SuperblockWeight:
    block, least, packed, fifth, codes = _parts(raw, 2, 2, 12, 32, 128)
    scales, minima = _six_bits(packed)
    codes = _planes(codes, 4, 32) | _planes(fifth, 1, 32) << np.uint8(4)
    return _superblocks(codes, scales, block, minima, least)


def _q6_k(raw: Array) -> SuperblockWeight:
    low, high, scales, block = _parts(raw, 128, 64, 16, 2)
    codes = _planes(low, 4, 64) | _planes(high, 2, 32) << np.uint8(4)
    return _superblocks(codes.view(np.int8) - np.int8(32), scales, block)


def _q3_k(raw: Array) -> QuantizedWeight:
    high, low, packed, block = _parts(raw, 32, 64, 12, 2)
    codes = (_planes(low, 2, 32) | _planes(high, 1, 32) << np.uint8(2)).view(np.int8) - np.int8(4)
    scales = _nibbles(packed[..., :8]) | _planes(packed[..., 8:], 2, 4) << np.uint8(4)
    return _rows(codes, _products(block, scales.view(np.int8) - np.int8(32)))


def _q2_k(raw: Array) -> QuantizedWeight:
    packed, codes, block, least = _parts(raw, 16, 64, 2, 2)
    minima = -_products(least, packed >> 4)
    return _rows(_planes(codes, 2, 32), _products(block, packed & 15), minima)


def _iq4_xs(raw: Array) -> QuantizedWeight:
    block, high, low, codes = _parts(raw, 2, 2, 4, 128)
    upper = np.ascontiguousarray(high).view("<u2") >> np.arange(0, 16, 2, dtype=np.uint16) & 3
    scales = _planes(low, 4, 1) | upper.astype(np.uint8) << np.uint8(4)
    values = _NONLINEAR[_planes(codes, 4, 16)]
    return _rows(values, _products(block, scales.view(np.int8) - np.int8(32)))


# By type: the encoding that holds its codes, and how they are found.
OWN_ENCODINGS: dict[str, tuple[Encoding, Split]] = {
    "q4_0": (Encoding("matrix_q4", 32), _q4_0),
    "q4_1": (Encoding("matrix_q4_min", 32), _q4_1),
    "q5_0": (Encoding("matrix_q5", 32), _q5_0),
    "q5_1": (Encoding("matrix_q5_min", 32), _q5_1),
    "q8_0": (Encoding("matrix_q8", 32), _q8_0),
    "iq4_nl": (Encoding("matrix_q8", 32), _iq4_nl),
    "q2_k": (Encoding("matrix_q4_min", 16), _q2_k),
    "q3_k": (Encoding("matrix_q4", 16), _q3_k),
    "q4_k": (Encoding("matrix_q4_k", 32), _q4_k),
    "q5_k": (Encoding("matrix_q5_k", 32), _q5_k),
    "q6_k": (Encoding("matrix_q6_k", 16), _q6_k),
    "iq4_xs": (Encoding("matrix_q8", 32), _iq4_xs),
}
