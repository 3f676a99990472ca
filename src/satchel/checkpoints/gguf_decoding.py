"""GGUF's tensor types as codecs; the gguf library does the arithmetic of the quantised ones."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from satchel.checkpoints.decoding import BF16, F16, F32, Codec, Split
from satchel.encodings.encoding import Encoding
from satchel.quantize.affine import QuantizedWeight

QUANTISED = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K")


@cache
def gguf_codecs() -> dict[int, Codec]:
    """The readable tensor types by their number in the file."""
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    codecs = {
        int(GGMLQuantizationType.F32): F32,
        int(GGMLQuantizationType.F16): F16,
        int(GGMLQuantizationType.BF16): BF16,
    }
    for name in QUANTISED:
        kind = GGMLQuantizationType[name]
        block, size = GGML_QUANT_SIZES[kind]
        codecs[int(kind)] = _quantised(name.lower(), int(kind), block, size)
    return codecs


def gguf_type_name(kind: int) -> str:
    """What GGUF calls a tensor type."""
    from gguf.constants import GGMLQuantizationType

    try:
        return str(GGMLQuantizationType(kind).name)
    except ValueError:
        return f"number {kind}"


def _quantised(name: str, kind: int, block: int, size: int) -> Codec:
    def decode(raw: NDArray[np.uint8], out: NDArray[np.float32]) -> None:
        from gguf.constants import GGMLQuantizationType
        from gguf.quants import dequantize

        # As one long row: the library works on 16 rows at a time, which is slow for short ones.
        values = dequantize(raw.reshape(1, -1), GGMLQuantizationType(kind))
        out[...] = values.reshape(out.shape)

    own, split = OWN_ENCODINGS.get(name, (None, None))
    return Codec(name, block, size, decode, Encoding(own, block) if own else None, split)


def _parts(raw: NDArray[np.uint8], *sizes: int) -> list[NDArray[np.uint8]]:
    """The parts of every block, each [rows, blocks, size]."""
    blocks = raw.reshape(len(raw), -1, sum(sizes))
    return np.split(blocks, np.cumsum(sizes)[:-1], axis=2)


def _halves(part: NDArray[np.uint8]) -> NDArray[np.float16]:
    return np.ascontiguousarray(part).view("<f2")[:, :, 0].astype(np.float16)


def _nibbles(part: NDArray[np.uint8]) -> NDArray[np.int8]:
    """The codes of a block: all low halves of its bytes, then all high ones."""
    codes = np.concatenate([part & 15, part >> 4], axis=2)
    return codes.reshape(len(part), -1).view(np.int8)


def _split_q4_0(raw: NDArray[np.uint8]) -> QuantizedWeight:
    scales, codes = _parts(raw, 2, 16)
    return QuantizedWeight(_nibbles(codes) - np.int8(8), _halves(scales))


def _split_q4_1(raw: NDArray[np.uint8]) -> QuantizedWeight:
    scales, minima, codes = _parts(raw, 2, 2, 16)
    return QuantizedWeight(_nibbles(codes), _halves(scales), _halves(minima))


def _split_q8_0(raw: NDArray[np.uint8]) -> QuantizedWeight:
    scales, codes = _parts(raw, 2, 32)
    return QuantizedWeight(codes.reshape(len(raw), -1).view(np.int8), _halves(scales))


# The types that a program can hold as they are, and the kind of encoding that does.
OWN_ENCODINGS: dict[str, tuple[str, Split]] = {
    "q4_0": ("matrix_q4", _split_q4_0),
    "q4_1": ("matrix_q4_min", _split_q4_1),
    "q8_0": ("matrix_q8", _split_q8_0),
}
