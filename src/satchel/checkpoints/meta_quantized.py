"""Llama's own quantised checkpoints: QAT with LoRA, and SpinQuant.

A layer has ``weight`` (int8; of 4 bits in the layers, of 8 in embedding and output) and ``scales``,
one for each group of columns or for a whole row. Those trained with LoRA also have
``adaptor.A.weight`` and ``adaptor.B.weight``, whose product is added to the layer's result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.checkpoints.decoding import I8
from satchel.checkpoints.overlay import ScaledTensor
from satchel.checkpoints.stored import ReadableTensor, StoredTensor
from satchel.encodings.encoding import Encoding
from satchel.errors import CheckpointError
from satchel.quantize.affine import QuantizedWeight

SCHEME = "int4_weight_int8_dynamic_activation"
DEFAULT_LORA_SCALE = 2.0
_AGAIN = "Fetch the checkpoint again"


@dataclass(frozen=True)
class Int8Tensor:
    """Codes and scales that lie in two tensors."""

    codes: StoredTensor
    scales: StoredTensor  # [rows, groups]
    bits: int

    @property
    def shape(self) -> tuple[int, ...]:
        return self.codes.shape

    @property
    def dtype(self) -> str:
        return f"int{self.bits}"

    @property
    def group(self) -> int:
        return self.codes.columns // self.scales.columns

    @property
    def own_encoding(self) -> Encoding:
        return Encoding(f"matrix_q{self.bits}", self.group)

    @property
    def order(self) -> NDArray[Any] | None:
        return None

    def read(self, name: str, rows: slice | None = None) -> NDArray[np.float32]:
        weights: NDArray[np.float32] = self.read_quantized(name, rows).floats()
        return weights

    def read_quantized(self, name: str, rows: slice | None = None) -> QuantizedWeight:
        """The scales come in the precision that the checkpoint has them in."""
        codes = self.codes.read(name, rows)
        lowest, highest = -(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1
        if codes.size and (codes.min() < lowest or codes.max() > highest):
            raise CheckpointError(
                f"{self.codes.file.path}: {name} holds codes that {self.bits} bits do not have",
                "The checkpoint is quantised in another way, or damaged",
            )
        return QuantizedWeight(codes.astype(np.int8), self.scales.read(f"{name}, scales", rows))


def is_quantized(params: Mapping[str, Any], tensors: Mapping[str, Any]) -> bool:
    return bool(params.get("quantization_args")) or any(n.endswith(".scales") for n in tensors)


def check_arguments(params: Mapping[str, Any], where: Path) -> None:
    """What quantization_args of params.json says must be what is read here."""
    arguments = params.get("quantization_args") or {}
    scheme = arguments.get("scheme", SCHEME)
    if scheme != SCHEME:
        raise CheckpointError(
            f"{where}: the quantisation is {scheme!r}, and only {SCHEME} is read",
            "Use the checkpoint in full precision and choose a recipe instead",
        )


def rotated_tensors(params: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    """SpinQuant transforms what goes into the last layer of every feed-forward."""
    if not (params.get("quantization_args") or {}).get("spinquant"):
        return []
    return [name for name in names if name.endswith(".mlp.down_proj.weight")]


def join_scales(
    stored: Mapping[str, StoredTensor], parts: Mapping[str, StoredTensor], where: Path
) -> dict[str, ReadableTensor]:
    """The tensors, those that have scales as one with them. ``parts`` has scales and zeros."""
    joined: dict[str, ReadableTensor] = {}
    for name, tensor in stored.items():
        scales = parts.get(f"{name.removesuffix('.weight')}.scales")
        if scales is None:
            joined[name] = tensor
            continue
        rows = tensor.shape[0] if len(tensor.shape) == 2 else 0
        count = scales.columns if len(scales.shape) > 1 else 1
        if (
            not rows
            or tensor.dtype != "i8"
            or scales.codec is None
            or scales.shape[0] != rows
            or tensor.columns % count
        ):
            raise CheckpointError(
                f"{where}: {name}, {tensor.dtype} of shape {list(tensor.shape)}, does not fit "
                f"scales of shape {list(scales.shape)}",
                _AGAIN,
            )
        # Embedding and output have 8 bits and a scale for each row; an output in groups, 4 bits.
        bits = 4 if ".layers." in name or (name == "lm_head.weight" and count > 1) else 8
        plane = replace(scales, shape=(rows, count), heads=tensor.heads)
        joined[name] = Int8Tensor(replace(tensor, codec=I8), plane, bits)
    for name, part in parts.items():
        if name.endswith(".zeros") and part.codec and np.any(part.read(name)):
            raise CheckpointError(
                f"{where}: {name} has zero points other than 0", "Only symmetric codes are read"
            )
    return joined


def lora_branches(
    parts: Mapping[str, StoredTensor], params: Mapping[str, Any], where: Path
) -> tuple[dict[str, ReadableTensor], dict[str, tuple[str, str]]]:
    """The adaptors' tensors, and by weight the names of a and b; the scale is part of b."""
    scale = float((params.get("lora_args") or {}).get("scale", DEFAULT_LORA_SCALE))
    tensors: dict[str, ReadableTensor] = {}
    branches: dict[str, tuple[str, str]] = {}
    for name in parts:
        layer, found, part = name.partition(".adaptor.")
        if not found or part != "A.weight":
            continue
        a, b = name, f"{layer}.adaptor.B.weight"
        if b not in parts or parts[a].shape[0] != parts[b].shape[1]:
            raise CheckpointError(f"{where}: the adaptor of {layer} is not whole", _AGAIN)
        tensors[a] = parts[a]
        tensors[b] = ScaledTensor(parts[b], scale)
        branches[f"{layer}.weight"] = (a, b)
    return tensors, branches
