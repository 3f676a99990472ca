"""How a number format on disk becomes float32."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from satchel.encodings.encoding import Encoding
from satchel.quantize.superblocks import KeptRows

# raw [rows, row_bytes] uint8 -> out [rows, columns] float32
Decode = Callable[[NDArray[np.uint8], NDArray[np.float32]], None]
Split = Callable[[NDArray[np.uint8]], KeptRows]


@dataclass(frozen=True)
class Codec:
    """A format of numbers: ``block`` values take ``size`` bytes.

    ``own_encoding`` is the encoding that stores a matrix of them as it is. For a quantised one,
    ``split`` gives the codes and scales of raw rows.
    """

    name: str
    block: int
    size: int
    decode: Decode
    own_encoding: Encoding | None = None
    split: Split | None = None

    def row_bytes(self, columns: int) -> int:
        return columns // self.block * self.size


def _decode_f32(raw: NDArray[np.uint8], out: NDArray[np.float32]) -> None:
    out[...] = raw.view("<f4")


def _decode_f64(raw: NDArray[np.uint8], out: NDArray[np.float32]) -> None:
    out[...] = raw.view("<f8")


def _decode_f16(raw: NDArray[np.uint8], out: NDArray[np.float32]) -> None:
    out[...] = raw.view("<f2")


def _decode_bf16(raw: NDArray[np.uint8], out: NDArray[np.float32]) -> None:
    # bfloat16 is the upper half of a float32.
    np.left_shift(raw.view("<u2"), np.uint32(16), out=out.view(np.uint32))


def _decode_i8(raw: NDArray[np.uint8], out: NDArray[np.float32]) -> None:
    out[...] = raw.view(np.int8)


F64 = Codec("f64", 1, 8, _decode_f64)
F32 = Codec("f32", 1, 4, _decode_f32, Encoding("matrix_f32"))
F16 = Codec("f16", 1, 2, _decode_f16, Encoding("matrix_f16"))
BF16 = Codec("bf16", 1, 2, _decode_bf16)
I8 = Codec("i8", 1, 1, _decode_i8)  # codes, which mean something with their scales only

FLOATS = {codec.name: codec for codec in (F64, F32, F16, BF16)}
