"""Linear layers as GPTQ and AWQ store them: codes of 4 or 8 bits packed into 32-bit integers.

Both have [in, out] where a weight is [out, in]. GPTQ packs codes of neighbouring inputs, AWQ those
of neighbouring outputs in an order of its own. Both pack zero points along the outputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.checkpoints.stored import CHUNK_VALUES, StoredTensor
from satchel.encodings.encoding import Encoding
from satchel.errors import CheckpointError
from satchel.quantize.affine import QuantizedWeight, zero_point_offsets

Array = NDArray[Any]

# Where AWQ's 32 bits have the codes of eight neighbouring outputs.
AWQ_PLACES = (0, 4, 1, 5, 2, 6, 3, 7)


@dataclass(frozen=True)
class PackedLinear:
    """The weight of one linear layer; nothing of it but ``order`` has been read."""

    method: str  # "gptq" or "awq"
    bits: int
    group: int
    codes: StoredTensor  # qweight
    zeros: StoredTensor  # qzeros
    scales: StoredTensor
    shape: tuple[int, ...]  # [out, in]
    zero_shift: int  # added to the stored zero points
    symmetric: bool  # all zero points are said to be in the middle
    order: Array | None = None  # the inputs in the order of the groups, where that is another

    @property
    def dtype(self) -> str:
        return f"{self.method}{self.bits}"

    @property
    def own_encoding(self) -> Encoding:
        return Encoding(f"matrix_q{self.bits}" + ("" if self.symmetric else "_offset"), self.group)

    @property
    def middle(self) -> int:
        return 1 << (self.bits - 1)

    def read(self, name: str, rows: slice | None = None) -> NDArray[np.float32]:
        weights = self.read_quantized(name, rows).floats()
        if self.order is not None:
            weights[:, self.order] = weights.copy()
        return weights

    def read_quantized(self, name: str, rows: slice | None = None) -> QuantizedWeight:
        """Outputs ``rows``; the inputs come in the order of the groups."""
        start, stop, _ = (rows or slice(None)).indices(self.shape[0])
        codes = self._codes(start, stop)
        if self.order is not None:
            codes = codes[self.order]
        scales = _columns(self.scales, start, stop)
        halves = scales.astype(np.float16)
        if not (halves == scales).all():
            raise CheckpointError(
                f"{self.scales.file.path}: the scales of {name} are not exact in 16 bits",
                "Use the checkpoint in full precision and choose another recipe",
            )
        zeros = self._unpacked_outputs(self.zeros, start, stop).astype(np.int16)
        zeros = (zeros + self.zero_shift) % (2 * self.middle)
        if self.symmetric and (zeros != self.middle).any():
            raise CheckpointError(
                f"{self.zeros.file.path}: the zero points of {name} are not all {self.middle}, as "
                "a symmetric checkpoint has them",
                "Set sym to false in quantization_config",
            )
        offsets = None if self.symmetric else zero_point_offsets(halves, zeros, self.middle).T
        return QuantizedWeight(_signed(codes.T, self.middle), halves.T, offsets)

    def _codes(self, start: int, stop: int) -> Array:
        """[in, outputs]"""
        if self.method == "awq":
            return self._unpacked_outputs(self.codes, start, stop)
        parts = self._parts(_columns(self.codes, start, stop))  # [words, outputs, codes of a word]
        return np.ascontiguousarray(parts.transpose(0, 2, 1)).reshape(-1, stop - start)

    def _unpacked_outputs(self, tensor: StoredTensor, start: int, stop: int) -> Array:
        """[groups or in, outputs] of integers that hold neighbouring outputs."""
        each = 32 // self.bits
        first = start // each
        parts = self._parts(_columns(tensor, first, -(-stop // each)))
        if self.method == "awq":
            parts = parts[:, :, AWQ_PLACES]
        flat = parts.reshape(len(parts), -1)
        return flat[:, start - first * each : stop - first * each]

    def _parts(self, words: Array) -> Array:
        """The codes in each 32-bit integer, the lowest bits first: [rows, columns, codes]."""
        lanes = words.astype("<u4", copy=False).view(np.uint8).reshape(*words.shape, 4)
        if self.bits == 8:
            return lanes
        halves = np.stack([lanes & 15, lanes >> 4], axis=-1)
        return halves.reshape(*words.shape, 8)


def _signed(codes: Array, middle: int) -> Array:
    """Codes about zero, which fit in 8 bits."""
    shifted: Array = np.ascontiguousarray(codes) - np.uint8(middle)  # modulo 256
    return shifted.view(np.int8)


def _columns(tensor: StoredTensor, start: int, stop: int) -> Array:
    """Some columns of a matrix of 32-bit integers, or of floats as float32.

    They lie apart, so whole rows are read, some at a time.
    """
    floats = tensor.dtype != "i32"
    out = np.empty((tensor.rows, stop - start), np.float32 if floats else np.uint32)
    step = max(1, CHUNK_VALUES // tensor.columns)
    for row in range(0, tensor.rows, step):
        last = min(row + step, tensor.rows)
        if floats:
            out[row:last] = tensor.read("scales", slice(row, last))[:, start:stop]
            continue
        words = np.empty((last - row, tensor.columns), "<u4")
        tensor.file.read_into(tensor.offset + row * tensor.columns * 4, words.view(np.uint8))
        out[row:last] = words[:, start:stop]
    return out
