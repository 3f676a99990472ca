"""GGUF's tensor types as codecs; the gguf library does the arithmetic of the quantised ones."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from satchel.checkpoints.decoding import BF16, F16, F32, Codec
from satchel.checkpoints.gguf_codes import OWN_ENCODINGS

QUANTISED = """Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS
    IQ1_S IQ1_M IQ2_XXS IQ2_XS IQ2_S IQ3_XXS IQ3_S TQ1_0 TQ2_0 MXFP4""".split()


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
        if name not in GGMLQuantizationType.__members__:
            continue  # an older gguf library
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
    return Codec(name, block, size, decode, own, split)
