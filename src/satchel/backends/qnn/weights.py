"""Weights as the NPU is given them: the codes and scales that the program file holds, or codes
of 8 bits that are made of the numbers in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from satchel.backends.qnn.hadamard import hadamard_codes
from satchel.backends.qnn.halves import FLOATS
from satchel.backends.qnn.ops import bounded
from satchel.backends.qnn.row_parts import RowPart
from satchel.backends.qnn.widths import WIDE
from satchel.encodings.encoding import Encoding
from satchel.encodings.packing import dequantize_groups, split_planes, unpack_codes
from satchel.encodings.tiles import TILE_ROWS
from satchel.errors import ProgramFormatError, RecipeError
from satchel.quantize.blockwise import dequantize_blocks
from satchel.quantize.static import quantize_rows
from satchel.runtime.program import Program

Array = NDArray[Any]
_ROWS_AT_ONCE = 4096
BLOCKS = (32, 64)  # columns that may share a scale


@dataclass(frozen=True)
class StoredMatrix:
    """``codes`` [out, in] are int8, or with 16 ``bits`` floats that stand for themselves. With
    ``factors``, ``scales`` are whole numbers of blocks (LPBQ); without, they are floats: one for
    each row, or for each block of a row."""

    codes: Array
    scales: Array
    factors: Array | None
    bits: int

    def numbers(self) -> Array:
        """What the codes stand for, made of some rows after the other to save memory."""
        made = np.empty(self.codes.shape, np.float32)
        for first in range(0, len(made), _ROWS_AT_ONCE):
            part = slice(first, first + _ROWS_AT_ONCE)
            codes, scales = self.codes[part], self.scales[part]
            if self.factors is None:
                made[part] = dequantize_groups(codes, scales)
            else:
                made[part] = dequantize_blocks(codes, scales, self.factors[part])
        return made


def in_floats(numbers: Array, scales: Array | None = None) -> StoredMatrix:
    """A matrix as 16-bit floats; of codes, what they stand for."""
    floats = (numbers if scales is None else numbers * scales).astype(np.float16)
    return StoredMatrix(floats, np.ones((len(floats), 1), np.float32), None, 16)


def fits_blocks(group: int, columns: int) -> bool:
    """Whether groups of a row are blocks of the NPU's: a row, or some blocks with equal scales.

    >>> fits_blocks(128, 512), fits_blocks(32, 512), fits_blocks(16, 512), fits_blocks(96, 96)
    (True, True, False, True)
    """
    return group == columns or group in BLOCKS or group % BLOCKS[-1] == 0


def _in_blocks(codes: Array, scales: Array, columns: int, bits: int) -> StoredMatrix:
    """Groups as the NPU has them, and the same numbers: blocks of at most 64, scales above 0.

    A group whose scale is below 0 has its codes negated, and -8 becomes 8: then codes have 8
    bits.
    """
    group = columns // scales.shape[1]
    if scales.shape[1] > 1 and group not in BLOCKS:
        scales = np.repeat(scales, group // BLOCKS[-1], axis=1)
    if (scales < 0).any():
        signs = np.where(scales < 0, np.int8(-1), np.int8(1))
        codes = codes * np.repeat(signs, columns // scales.shape[1], axis=1)
        scales, bits = np.abs(scales), 8
    return StoredMatrix(codes, scales, None, bits)


class WeightStore(Protocol):
    def matrix(self, name: str) -> StoredMatrix: ...

    def array(self, name: str) -> Array: ...


class ProgramWeights:
    """The weights of a program file, read when they are asked for.

    ``bits`` are those of activations: with floats, matrices are floats too. ``least`` has, by name,
    the smallest scale that each row of a matrix may have whose codes are made here.
    """

    def __init__(self, program: Program, bits: int = 16) -> None:
        self._program, self._floats = program, bits == FLOATS
        self._index = {w["name"]: w for w in program.weights}
        self._made: dict[str, StoredMatrix] = {}
        self.least: dict[str, Array] = {}

    @property
    def have_codes(self) -> bool:
        """Whether matrices are stored as codes, so that nothing about them can be chosen here."""
        return any(self._encoding(name).is_quantized for name in self._index)

    def _encoding(self, name: str) -> Encoding:
        info = self._index[RowPart.named(name).weight]
        return Encoding(info["encoding"], info["group"])

    def array(self, name: str) -> Array:
        """The numbers of a weight."""
        if RowPart.named(name).count > 1 or hadamard_codes(name):
            return self.matrix(name).numbers()
        array = self._program.weight(name.removesuffix(WIDE))
        return bounded(array) if array.dtype == np.float32 else array

    def matrix(self, name: str) -> StoredMatrix:
        """A layer's weight. Only codes that are made here are kept."""
        known = hadamard_codes(name)
        if known is not None:
            return in_floats(*known) if self._floats else StoredMatrix(*known, None, 8)
        if self._floats:
            part = RowPart.named(name)
            first, last = part.rows(self._index[part.weight]["shape"][0])
            return in_floats(self._program.weight(part.weight)[first:last])
        if self._encoding(name).is_quantized:
            return self._stored(name)
        if name not in self._made:
            part = RowPart.named(name)
            first, last = part.rows(self._index[part.weight]["shape"][0])
            rows = self._program.weight(part.weight)[first:last]
            codes, scales = quantize_rows(rows)
            least = self.least.get(name, np.float32(0))
            if (scales < least).any():
                scales = np.maximum(scales, least)
                codes = np.rint(rows / scales[:, None]).astype(np.int8)
            self._made[name] = StoredMatrix(codes, scales[:, None], None, 8)
        return self._made[name]

    def _stored(self, name: str) -> StoredMatrix:
        part, encoding = RowPart.named(name), self._encoding(name)
        info, layout = self._index[part.weight], encoding.layout
        rows, cols = info["shape"]
        (first, last), tiles = part.tiles(rows), -(-rows // TILE_ROWS)
        tile = info["codes_size"] // tiles
        codes = self._read(info["offset"] + first * tile, (last - first) * tile)
        scales = self._read(info["scales_offset"], info["scales_size"])
        planes = [
            plane[first * plane.size // tiles : last * plane.size // tiles]
            for plane in split_planes(layout, scales, rows, cols, encoding.group)
        ]
        count = part.rows(rows)[1] - part.rows(rows)[0]
        if layout == "lpbq4":
            plain, blocks = unpack_codes(layout, codes, planes[0], count, cols, encoding.group)
            factors = np.ascontiguousarray(planes[1]).view(np.float32)[:count]
            return StoredMatrix(plain, blocks.astype(np.uint8), factors, 4)
        if layout in ("q4", "q8") and fits_blocks(encoding.group, cols):
            plain, found = unpack_codes(layout, codes, planes[0], count, cols, encoding.group)
            return _in_blocks(plain, found.astype(np.float32), cols, 4 if layout == "q4" else 8)
        raise RecipeError(
            f"the NPU does not compute with {name} as {encoding}",
            "Use the recipe 16a4w, 16a8w or 8a8w.",
        )

    def _read(self, offset: int, size: int) -> Array:
        data = np.fromfile(self._program.path, np.uint8, size, offset=offset)
        if data.size != size:
            raise ProgramFormatError("the file ends too early", "", "weights", offset)
        return data
