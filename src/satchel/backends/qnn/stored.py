"""Weights as the NPU is given them: the codes and scales that the program file holds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from satchel.errors import ProgramFormatError, RecipeError
from satchel.quantize.blockwise import dequantize_blocks
from satchel.quantize.encoding import Encoding
from satchel.quantize.packing import dequantize_groups, split_planes, unpack_codes
from satchel.quantize.tiles import TILE_ROWS
from satchel.runtime.program import Program

Array = NDArray[Any]


@dataclass(frozen=True)
class StoredMatrix:
    """``codes`` int8 [out, in]. With ``factors``, ``scales`` are whole numbers of blocks (LPBQ);
    without, they are one float for each row."""

    codes: Array
    scales: Array
    factors: Array | None
    bits: int

    def numbers(self) -> Array:
        """What the codes stand for."""
        if self.factors is None:
            return dequantize_groups(self.codes, self.scales)
        return dequantize_blocks(self.codes, self.scales, self.factors)


class WeightStore(Protocol):
    def matrix(self, name: str) -> StoredMatrix: ...

    def array(self, name: str) -> Array: ...


class ProgramWeights:
    """The weights of a program file, read when they are asked for and not kept."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._index = {w["name"]: w for w in program.weights}

    def array(self, name: str) -> Array:
        return self._program.weight(name)

    def matrix(self, name: str) -> StoredMatrix:
        info = self._index[name]
        codes = self._read(info["offset"], info["codes_size"])
        scales = self._read(info["scales_offset"], info["scales_size"])
        return _unpack(name, info, codes, scales, info["shape"][0])

    def _read(self, offset: int, size: int) -> Array:
        data = np.fromfile(self._program.path, np.uint8, size, offset=offset)
        if data.size != size:
            raise ProgramFormatError("the file ends too early", "", "weights", offset)
        return data

    @cached_property
    def _mapped(self) -> Array:
        return np.memmap(self._program.path, np.uint8, "r")

    def rows(self, name: str, numbers: Array) -> Array:
        """Some rows of a matrix, decoded: only their tiles of 16 rows are read."""
        info = self._index[name]
        cols = info["shape"][1]
        out = np.empty((len(numbers), cols), np.float32)
        encoding = Encoding(info["encoding"], info["group"])
        for tile in np.unique(numbers // TILE_ROWS):
            decoded = self._tile(info, encoding, int(tile))
            here = numbers // TILE_ROWS == tile
            out[here] = decoded[numbers[here] % TILE_ROWS]
        return out

    def _tile(self, info: dict[str, Any], encoding: Encoding, tile: int) -> Array:
        rows, cols = info["shape"]
        shape = (TILE_ROWS, cols)
        size, _ = encoding.sizes(shape)
        start = info["offset"] + tile * size
        codes = np.array(self._mapped[start : start + size])
        if not encoding.is_quantized:
            return encoding.decode(codes, np.zeros(0, np.uint8), shape)
        first = info["scales_offset"]
        all_scales = self._mapped[first : first + info["scales_size"]]
        planes = split_planes(encoding.layout, all_scales, rows, cols, encoding.group)
        tiles = -(-rows // TILE_ROWS)
        parts = [np.array(p[tile * p.size // tiles :][: p.size // tiles]) for p in planes]
        unpacked = unpack_codes(encoding.layout, codes, parts[0], TILE_ROWS, cols, encoding.group)
        if len(parts) > 1:
            return dequantize_blocks(*unpacked, parts[1].view(np.float32))
        return dequantize_groups(*unpacked)


def _unpack(
    name: str, info: dict[str, Any], codes: Array, scales: Array, rows: int
) -> StoredMatrix:
    encoding, cols = Encoding(info["encoding"], info["group"]), info["shape"][1]
    layout = encoding.layout
    if layout == "lpbq4":
        plane, factors = split_planes(layout, scales, rows, cols, encoding.group)
        plain, blocks = unpack_codes(layout, codes, plane, rows, cols, encoding.group)
        return StoredMatrix(plain, blocks.astype(np.uint8), factors.view(np.float32)[:rows], 4)
    if layout == "q8" and encoding.group == cols:
        plain, row_scales = unpack_codes(layout, codes, scales, rows, cols, encoding.group)
        return StoredMatrix(plain, row_scales.astype(np.float32), None, 8)
    raise RecipeError(
        f"the NPU does not compute with {name} as {encoding}",
        "Use the recipe 16a4w, 16a8w or 8a8w.",
    )
