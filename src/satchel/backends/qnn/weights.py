"""Weights as the NPU is given them: the codes and scales that the program file holds, or codes
of 8 bits that are made of the numbers in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from satchel.backends.qnn.ops import bounded
from satchel.backends.qnn.widths import WIDE
from satchel.errors import ProgramFormatError, RecipeError
from satchel.quantize.blockwise import dequantize_blocks
from satchel.quantize.encoding import Encoding
from satchel.quantize.packing import dequantize_groups, split_planes, unpack_codes
from satchel.quantize.static import quantize_rows
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
    """The weights of a program file, read when they are asked for.

    ``least`` has, by name, the smallest scale that each row of a matrix may have whose codes are
    made here.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self._index = {w["name"]: w for w in program.weights}
        self._made: dict[str, StoredMatrix] = {}
        self.least: dict[str, Array] = {}

    @property
    def have_codes(self) -> bool:
        """Whether matrices are stored as codes, so that nothing about them can be chosen here."""
        return any(self._encoding(name).is_quantized for name in self._index)

    def _encoding(self, name: str) -> Encoding:
        return Encoding(self._index[name]["encoding"], self._index[name]["group"])

    def array(self, name: str) -> Array:
        """The numbers of a weight."""
        array = self._program.weight(name.removesuffix(WIDE))
        return bounded(array) if array.dtype == np.float32 else array

    def matrix(self, name: str) -> StoredMatrix:
        """A layer's weight. Only codes that are made here are kept."""
        if self._encoding(name).is_quantized:
            return self._stored(name)
        if name not in self._made:
            rows = self._program.weight(name)
            codes, scales = quantize_rows(rows)
            least = self.least.get(name, np.float32(0))
            if (scales < least).any():
                scales = np.maximum(scales, least)
                codes = np.rint(rows / scales[:, None]).astype(np.int8)
            self._made[name] = StoredMatrix(codes, scales[:, None], None, 8)
        return self._made[name]

    def _stored(self, name: str) -> StoredMatrix:
        info, encoding = self._index[name], self._encoding(name)
        rows, cols = info["shape"]
        codes = self._read(info["offset"], info["codes_size"])
        scales = self._read(info["scales_offset"], info["scales_size"])
        if encoding.layout == "lpbq4":
            plane, factors = split_planes("lpbq4", scales, rows, cols, encoding.group)
            plain, blocks = unpack_codes("lpbq4", codes, plane, rows, cols, encoding.group)
            return StoredMatrix(plain, blocks.astype(np.uint8), factors.view(np.float32)[:rows], 4)
        if encoding.layout == "q8" and encoding.group == cols:
            plain, row_scales = unpack_codes("q8", codes, scales, rows, cols, encoding.group)
            return StoredMatrix(plain, row_scales.astype(np.float32), None, 8)
        raise RecipeError(
            f"the NPU does not compute with {name} as {encoding}",
            "Use the recipe 16a4w, 16a8w or 8a8w.",
        )

    def _read(self, offset: int, size: int) -> Array:
        data = np.fromfile(self._program.path, np.uint8, size, offset=offset)
        if data.size != size:
            raise ProgramFormatError("the file ends too early", "", "weights", offset)
        return data
