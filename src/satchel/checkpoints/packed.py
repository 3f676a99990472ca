"""Linear layers as GPTQ and AWQ store them: codes of 4 or 8 bits packed into 32-bit integers.

Both have [in, out] where a weight is [out, in]. GPTQ packs codes of neighbouring inputs, AWQ those
of neighbouring outputs in an order of its own. Both pack zero points along the outputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.checkpoints.stored import StoredTensor
from satchel.errors import CheckpointError
from satchel.quantize.affine import QuantizedRows, zero_point_offsets
from satchel.quantize.encoding import Encoding

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
    def kept(self) -> Encoding:
        return Encoding(f"matrix_q{self.bits}" + ("" if self.symmetric else "_offset"), self.group)

    @property
    def middle(self) -> int:
        return 1 << (self.bits - 1)

    def read(self, name: str, rows: slice | None = None) -> NDArray[np.float32]:
        weights = self.read_quantized(name, rows).floats()
        if self.order is not None:
            weights[:, self.order] = weights.copy()
        return weights

    def read_quantized(self, name: str, rows: slice | None = None) -> QuantizedRows:
        """Outputs ``rows``; the inputs come in the order of the groups."""
        start, stop, _ = (rows or slice(None)).indices(self.shape[0])
        codes = self._codes(start, stop)
        if self.order is not None:
            codes = codes[self.order]
        scales = _columns(self.scales, start, stop).astype(np.float32)
        halves = scales.astype(np.float16)
        if not (halves == scales).all():
            raise CheckpointError(
                f"{self.scales.file.path}: the scales of {name} are not exact in 16 bits",
                "Use the checkpoint in full precision and choose another recipe",
            )
        zeros = self._unpacked_outputs(self.zeros, start, stop)
        zeros = (zeros + self.zero_shift) % (2 * self.middle)
        if self.symmetric and (zeros != self.middle).any():
            raise CheckpointError(
                f"{self.zeros.file.path}: the zero points of {name} are not all {self.middle}, as "
                "a symmetric checkpoint has them",
                "Set sym to false in quantization_config",
            )
        offsets = None if self.symmetric else zero_point_offsets(halves, zeros, self.middle).T
        signed = (codes.T.astype(np.int16) - self.middle).astype(np.int8)
        return QuantizedRows(np.ascontiguousarray(signed), halves.T, offsets)

    def _codes(self, start: int, stop: int) -> Array:
        """[in, outputs]"""
        if self.method == "awq":
            return self._unpacked_outputs(self.codes, start, stop)
        words = _columns(self.codes, start, stop)
        codes = words[:, None, :] >> self._shifts[None, :, None]
        return (codes & self._mask).astype(np.uint8).reshape(-1, stop - start)

    def _unpacked_outputs(self, tensor: StoredTensor, start: int, stop: int) -> Array:
        """[groups or in, outputs] of integers that hold neighbouring outputs."""
        each = 32 // self.bits
        first = start // each
        words = _columns(tensor, first, -(-stop // each))
        codes = (words[:, :, None] >> self._shifts) & self._mask
        if self.method == "awq":
            codes = codes[:, :, AWQ_PLACES]
        flat = codes.astype(np.int16).reshape(len(words), -1)
        return flat[:, start - first * each : stop - first * each]

    @property
    def _shifts(self) -> Array:
        return np.arange(0, 32, self.bits, dtype=np.uint32)

    @property
    def _mask(self) -> np.uint32:
        mask: np.uint32 = np.uint32((1 << self.bits) - 1)
        return mask


def _columns(tensor: StoredTensor, start: int, stop: int) -> Array:
    """Some columns of a matrix of 32-bit integers or floats, row by row: they lie apart."""
    if tensor.dtype != "i32":
        return np.stack(
            [tensor.read("scales", slice(i, i + 1))[0, start:stop] for i in range(tensor.rows)]
        )
    out = np.empty((tensor.rows, stop - start), np.uint32)
    row_bytes = tensor.columns * 4
    for row in range(tensor.rows):
        tensor.file.read_into(tensor.offset + row * row_bytes + start * 4, out[row].view(np.uint8))
    return out
