"""How a weight lies in a program file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.encodings import packing
from satchel.encodings.k_quants import SUPERBLOCK_GROUPS
from satchel.encodings.steps import RUN_COLUMNS

# The numbers are those of docs/format.md.
KINDS = {
    "f32": 0,
    "f16": 1,
    "i32": 2,
    "u8": 3,
    "boolean": 4,
    "i64": 5,
    "matrix_f32": 16,
    "matrix_f16": 17,
    "matrix_q4": 18,
    "matrix_q8": 19,
    "matrix_lpbq4": 20,
    "matrix_q4_min": 21,
    "matrix_q4_offset": 22,
    "matrix_q8_offset": 23,
    "matrix_i8": 24,
    "matrix_q4_steps": 25,
    "matrix_q5": 26,
    "matrix_q5_min": 27,
    "matrix_q4_k": 28,
    "matrix_q5_k": 29,
    "matrix_q6_k": 30,
}
# What holds the same codes in whole bytes or nibbles, with scales of 16 bits, for targets that
# know no other.
_PLAIN_KINDS = {
    "matrix_q5": "matrix_q8",
    "matrix_q5_min": "matrix_q8_offset",
    "matrix_q4_k": "matrix_q4_min",
    "matrix_q5_k": "matrix_q8_offset",
    "matrix_q6_k": "matrix_q8",
}


PLAIN = {"f32": "float32", "f16": "float16", "i32": "int32", "u8": "uint8", "boolean": "bool"}
PLAIN["i64"] = "int64"


@dataclass(frozen=True)
class Encoding:
    """A plain row-major array, or a matrix packed in tiles of 16 rows for the kernels.

    ``group`` is the number of columns that share a scale, for the quantised kinds.
    """

    kind: str
    group: int = 0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"there is no encoding {self.kind!r}")

    def __str__(self) -> str:
        return self.kind + (f"/{self.group}" if self.group else "")

    @property
    def code(self) -> int:
        return KINDS[self.kind]

    @property
    def is_matrix(self) -> bool:
        return self.kind.startswith("matrix_")

    @property
    def is_quantized(self) -> bool:
        return self.is_matrix and self.kind not in ("matrix_f32", "matrix_f16")

    @property
    def layout(self) -> str:
        """The name that the packer knows a matrix by."""
        return self.kind.removeprefix("matrix_")

    @property
    def has_superblocks(self) -> bool:
        """Whether it holds a K-quant with its own steps and whole numbers."""
        return self.layout in SUPERBLOCK_GROUPS

    @property
    def plain(self) -> Encoding:
        """The same in an encoding that every target may know.

        >>> str(Encoding("matrix_q6_k", 16).plain)
        'matrix_q8/16'
        """
        return Encoding(_PLAIN_KINDS.get(self.kind, self.kind), self.group)

    def sizes(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """Bytes of the codes and of the scales."""
        if self.is_matrix:
            rows, cols = shape
            return packing.packed_sizes(self.layout, rows, cols, self.group)
        return int(np.prod(shape, dtype=np.int64)) * np.dtype(PLAIN[self.kind]).itemsize, 0

    def with_steps(self, shape: tuple[int, ...]) -> Encoding:
        """Of plain 4-bit weights, the form with scales of a byte, where it is the smaller one.

        >>> str(Encoding("matrix_q4", 32).with_steps((16, 2048)))
        'matrix_q4_steps/32'
        """
        if self.kind != "matrix_q4" or RUN_COLUMNS % self.group:
            return self
        other = Encoding("matrix_q4_steps", self.group)
        return other if other.sizes(shape) < self.sizes(shape) else self

    def decode(
        self, codes: NDArray[np.uint8], scales: NDArray[np.uint8], shape: tuple[int, ...]
    ) -> NDArray[Any]:
        """The array that the stored bytes stand for."""
        if self.is_matrix:
            rows, cols = shape
            return packing.unpack_matrix(self.layout, codes, scales, rows, cols, self.group)
        array = codes.view(PLAIN[self.kind]).reshape(shape)
        return array.astype(np.float32) if self.kind == "f16" else array
