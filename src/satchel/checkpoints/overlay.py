"""A checkpoint with other tensors laid over its own: how adapters reach the exporter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.checkpoints.adapter import LoraAdapter, LowRank
from satchel.checkpoints.base import Checkpoint, TensorInfo
from satchel.checkpoints.stored import ReadableTensor, StoredTensor
from satchel.checkpoints.weightfile import WeightFile
from satchel.encodings.encoding import Encoding
from satchel.errors import CheckpointError
from satchel.quantize.superblocks import KeptRows


class FloatTensor:
    """What tensors that are only ever floats have in common."""

    own_encoding: Encoding | None = None
    order: NDArray[Any] | None = None

    def read_quantized(self, name: str, rows: slice | None = None) -> KeptRows:
        raise CheckpointError(f"tensor {name} is not quantised")


@dataclass(frozen=True)
class MergedTensor(FloatTensor):
    """A weight with an adapter's product added to it, for the rows that are asked for."""

    base: Checkpoint
    info: TensorInfo
    part: LowRank

    @property
    def shape(self) -> tuple[int, ...]:
        return self.info.shape

    @property
    def dtype(self) -> str:
        return self.info.dtype

    def read(self, name: str, rows: slice | None = None) -> NDArray[np.float32]:
        weights = self.base.read(name, rows)
        a = self.part.a.read(f"lora_A of {name}")
        b = self.part.b.read(f"lora_B of {name}", rows) * np.float32(self.part.scale)
        merged: NDArray[np.float32] = weights + b @ a
        return merged


@dataclass(frozen=True)
class ScaledTensor(FloatTensor):
    """A stored tensor times a number."""

    source: StoredTensor
    scale: float

    @property
    def shape(self) -> tuple[int, ...]:
        return self.source.shape

    @property
    def dtype(self) -> str:
        return self.source.dtype

    def read(self, name: str, rows: slice | None = None) -> NDArray[np.float32]:
        values: NDArray[np.float32] = self.source.read(name, rows) * np.float32(self.scale)
        return values


class OverlaidCheckpoint(Checkpoint):
    """``tensors`` are read in place of, or besides, those of ``base``."""

    def __init__(
        self,
        base: Checkpoint,
        tensors: Mapping[str, ReadableTensor],
        file: WeightFile | None = None,
    ) -> None:
        self.base, self._file = base, file
        self.format, self.path, self.config = base.format, base.path, base.config
        self.generation, self.tokenizer = base.generation, base.tokenizer
        self.quantized_by, self.branches = base.quantized_by, base.branches
        self.rotated = base.rotated
        self._own = dict(tensors)
        self._tensors = dict(base.tensors) | {
            name: TensorInfo(t.shape, t.dtype, t.own_encoding, t.order)
            for name, t in tensors.items()
        }

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        return self._tensors

    def read(self, name: str, rows: slice | None = None) -> NDArray[np.float32]:
        own = self._own.get(name)
        return own.read(name, rows) if own else self.base.read(name, rows)

    def read_quantized(self, name: str, rows: slice | None = None) -> KeptRows:
        own = self._own.get(name)
        return own.read_quantized(name, rows) if own else self.base.read_quantized(name, rows)

    def close(self) -> None:
        self.base.close()
        if self._file is not None:
            self._file.close()


def merged(base: Checkpoint, adapter: LoraAdapter) -> Checkpoint:
    """The checkpoint with an adapter added to its weights."""
    if base.quantized_by:
        raise CheckpointError(
            f"{base.path} is quantised ({base.quantized_by}), so an adapter cannot be added to its "
            "weights",
            "Keep it apart: --adapter NAME=FOLDER.",
        )
    tensors = {
        name: MergedTensor(base, base.tensors[name], part) for name, part in adapter.parts.items()
    }
    return OverlaidCheckpoint(base, tensors, adapter.file)


def beside(base: Checkpoint, adapter: LoraAdapter, name: str) -> Checkpoint:
    """The checkpoint with an adapter's own tensors; the names are those of ``branch_names``."""
    tensors: dict[str, ReadableTensor] = {}
    for weight, part in adapter.parts.items():
        a, b = branch_names(name, weight)
        tensors[a] = part.a
        tensors[b] = ScaledTensor(part.b, part.scale)
    return OverlaidCheckpoint(base, tensors, adapter.file)


def branch_names(adapter: str, weight: str) -> tuple[str, str]:
    """What an adapter's two tensors for a weight are called.

    >>> branch_names("fr", "model.layers.0.mlp.up_proj.weight")
    ('fr:model.layers.0.mlp.up_proj.lora_A', 'fr:model.layers.0.mlp.up_proj.lora_B')
    """
    module = f"{adapter}:{weight.removesuffix('.weight')}"
    return f"{module}.lora_A", f"{module}.lora_B"
