"""Tensors that lie in files at known offsets: the part that all readers share."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from satchel.checkpoints.base import Checkpoint, TensorInfo, TokenizerSource
from satchel.checkpoints.decoding import F32, Codec
from satchel.checkpoints.weightfile import WeightFile
from satchel.encodings.encoding import Encoding
from satchel.errors import CheckpointError
from satchel.quantize.superblocks import KeptRows

# Values converted at a time: a read needs some of these on top of its result.
CHUNK_VALUES = 1 << 17


@dataclass(frozen=True)
class StoredTensor:
    """Where a tensor's bytes lie, and what brings them to the Hugging Face form."""

    file: WeightFile
    offset: int
    shape: tuple[int, ...]
    dtype: str
    codec: Codec | None  # None: a dtype that cannot be read as float32
    heads: int = 0  # not 0: rotary rows of so many heads, interleaved on disk
    shift: float = 0.0  # added to every value

    @property
    def rows(self) -> int:
        return self.shape[0] if len(self.shape) > 1 else 1

    @property
    def columns(self) -> int:
        return math.prod(self.shape[1:]) if len(self.shape) > 1 else math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.rows * self.codec.row_bytes(self.columns) if self.codec else 0

    def interleaved(self, name: str, heads: int) -> StoredTensor:
        """The same tensor, marked as rotary rows in interleaved order."""
        if heads < 1 or not self.shape or self.shape[0] % (2 * heads):
            raise CheckpointError(
                f"{self.file.path}: tensor {name} of shape {list(self.shape)} cannot be split "
                f"into {heads} heads of an even size",
                "The configuration does not belong to these weights",
            )
        return replace(self, heads=heads)

    def shifted(self, shift: float) -> StoredTensor:
        """The same tensor, with ``shift`` added to every value."""
        return replace(self, shift=shift)

    def read(self, name: str, rows: slice | None = None) -> NDArray[np.float32]:
        if self.codec is None:
            raise CheckpointError(
                f"{self.file.path}: tensor {name} has the type {self.dtype}, which cannot be read "
                "as a weight",
                "Use a checkpoint in F64, F32, F16 or BF16",
            )
        start, stop = self._bounds(name, rows)
        if len(self.shape) < 2:
            values = self._read_vector()
            return values[start:stop].copy() if stop - start < values.size else values
        first, last, head_size = self._whole_heads(start, stop)
        values = self._read_rows(first, last, head_size)
        if (first, last) != (start, stop):
            values = values[start - first : stop - first].copy()
        return values.reshape(stop - start, *self.shape[1:])

    @property
    def order(self) -> None:
        """Its columns lie in their own order."""

    @property
    def own_encoding(self) -> Encoding | None:
        """The encoding that stores this tensor as it is."""
        return (
            self.codec.own_encoding
            if self.codec and len(self.shape) == 2 and not self.shift
            else None
        )

    def read_quantized(self, name: str, rows: slice | None = None) -> KeptRows:
        """Codes and scales as they lie in the file, for a tensor that has them."""
        if self.codec is None or self.codec.split is None:
            raise CheckpointError(f"{self.file.path}: tensor {name} is not quantised")
        start, stop = self._bounds(name, rows)
        first, last, head_size = self._whole_heads(start, stop)
        row_bytes = self.codec.row_bytes(self.columns)
        raw = np.empty((last - first, row_bytes), np.uint8)
        if raw.size:
            self.file.read_into(self.offset + first * row_bytes, raw)
        if self.heads:
            raw = _half_split(raw, head_size)
        return self.codec.split(raw[start - first : stop - first])

    def _bounds(self, name: str, rows: slice | None) -> tuple[int, int]:
        length = self.shape[0] if self.shape else 1
        start, stop, step = (rows or slice(None)).indices(length)
        if step != 1:
            raise ValueError(f"rows of {name} are read in order: the step must be 1, not {step}")
        return start, max(start, stop)

    def _whole_heads(self, start: int, stop: int) -> tuple[int, int, int]:
        """Rows of whole heads, since only so interleaved ones come in order; a head's size."""
        head_size = self.shape[0] // self.heads if self.heads else 1
        return start // head_size * head_size, -(-stop // head_size) * head_size, head_size

    def _read_vector(self) -> NDArray[np.float32]:
        if self.heads:  # the bias of a rotary projection: one value per row
            column = replace(self, shape=(*self.shape, 1))
            return column._read_rows(0, self.shape[0], self.shape[0] // self.heads).reshape(-1)
        return self._read_rows(0, 1, 1).reshape(self.shape)

    def _read_rows(self, first: int, last: int, head_size: int) -> NDArray[np.float32]:
        codec = self.codec
        assert codec is not None
        out = np.empty((last - first, self.columns), np.float32)
        row_bytes = codec.row_bytes(self.columns)
        if out.size == 0:
            return out
        if codec is F32 and not self.heads and np.little_endian:
            self.file.read_into(self.offset + first * row_bytes, out.view(np.uint8))
        else:
            step = max(1, CHUNK_VALUES // (self.columns * head_size)) * head_size
            for begin in range(first, last, step):
                end = min(begin + step, last)
                raw = np.empty((end - begin, row_bytes), np.uint8)
                self.file.read_into(self.offset + begin * row_bytes, raw)
                if self.heads:
                    raw = _half_split(raw, head_size)
                codec.decode(raw, out[begin - first : end - first])
        if self.shift:
            out += np.float32(self.shift)
        return out


@dataclass(frozen=True)
class TransposedTensor:
    """A matrix whose columns lie one behind the other, as openai-whisper saves some."""

    columns_first: StoredTensor

    own_encoding: Encoding | None = None
    order: None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.columns_first.shape[::-1]

    @property
    def dtype(self) -> str:
        return self.columns_first.dtype

    def read(self, name: str, rows: slice | None = None) -> NDArray[np.float32]:
        whole = self.columns_first.read(name)
        return np.ascontiguousarray(whole[:, rows or slice(None)].T)

    def read_quantized(self, name: str, rows: slice | None = None) -> KeptRows:
        raise CheckpointError(f"{self.columns_first.file.path}: tensor {name} is not quantised")


def _half_split(raw: NDArray[np.uint8], head_size: int) -> NDArray[np.uint8]:
    """Rows x0 y0 x1 y1 … of each head as x0 x1 … y0 y1 …, the order of Hugging Face."""
    pairs = raw.reshape(-1, head_size // 2, 2, raw.shape[1])
    split: NDArray[np.uint8] = pairs.swapaxes(1, 2).reshape(raw.shape)
    return split


class ReadableTensor(Protocol):
    """What a checkpoint's tensor can do, however its bytes lie."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str: ...
    @property
    def own_encoding(self) -> Encoding | None: ...
    @property
    def order(self) -> NDArray[Any] | None: ...
    def read(self, name: str, rows: slice | None = None) -> NDArray[np.float32]: ...
    def read_quantized(self, name: str, rows: slice | None = None) -> KeptRows: ...


class StoredCheckpoint(Checkpoint):
    """A checkpoint whose tensors lie in files at known offsets."""

    def __init__(
        self,
        *,
        format: str,
        path: Path,
        files: Iterable[WeightFile],
        stored: Mapping[str, ReadableTensor],
        config: dict[str, Any],
        generation: dict[str, Any],
        tokenizer: TokenizerSource | None,
        quantized_by: str = "",
        branches: Mapping[str, tuple[str, str]] | None = None,
        rotated: Iterable[str] = (),
    ) -> None:
        self.format = format
        self.path = path
        self.config = config
        self.generation = generation
        self.tokenizer = tokenizer
        self.quantized_by = quantized_by
        self.branches = dict(branches or {})
        self.rotated = frozenset(rotated)
        self._files = list(files)
        self._stored = dict(stored)
        self._tensors = {
            name: TensorInfo(tensor.shape, tensor.dtype, tensor.own_encoding, tensor.order)
            for name, tensor in self._stored.items()
        }

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        return self._tensors

    def read(self, name: str, rows: slice | None = None) -> NDArray[np.float32]:
        return self._find(name).read(name, rows)

    def read_quantized(self, name: str, rows: slice | None = None) -> KeptRows:
        return self._find(name).read_quantized(name, rows)

    def _find(self, name: str) -> ReadableTensor:
        tensor = self._stored.get(name)
        if tensor is None:
            near = difflib.get_close_matches(name, self._stored, 1)
            raise CheckpointError(
                f"{self.path} has no tensor {name}",
                f"The nearest name in it is {near[0]}" if near else "It may be of another model",
            )
        return tensor

    def close(self) -> None:
        for file in self._files:
            file.close()
