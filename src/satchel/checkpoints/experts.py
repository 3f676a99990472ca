"""Experts, however a checkpoint has them, as one matrix for each of a layer's three parts.

``model.layers.N.mlp.experts.gate_proj.weight`` has the rows of all experts one behind the other,
``up_proj`` and ``down_proj`` too, and ``model.layers.N.mlp.gate.weight`` is the layer that chooses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from satchel.checkpoints.stored import ReadableTensor, StoredTensor
from satchel.encodings.encoding import Encoding
from satchel.errors import CheckpointError
from satchel.quantize.superblocks import KeptRows

_BLOCK = r"(?P<layer>.*\.)(?:mlp|block_sparse_moe)\."
_ONE = re.compile(_BLOCK + r"experts\.(?P<number>\d+)\.(?P<part>\w+)\.weight")
_ALL = re.compile(_BLOCK + r"(?P<part>experts\.\w+_proj|input_linear|output_linear)(?:\.weight)?")
_ROUTER = re.compile(r"(?P<layer>.*\.)block_sparse_moe\.(?:gate|router|router\.layer)\.weight")
_PARTS = {
    **{"w1": "gate_proj", "w3": "up_proj", "w2": "down_proj"},  # Mixtral
    **{"input_linear": "gate_up_proj", "output_linear": "down_proj"},  # Granite
}


@dataclass(frozen=True)
class RowRange:
    """Rows first … last-1 of a tensor."""

    name: str
    tensor: ReadableTensor
    first: int
    last: int


@dataclass(frozen=True)
class StackedTensor:
    """Rows of several tensors one behind the other."""

    parts: tuple[RowRange, ...]

    order: None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return (sum(p.last - p.first for p in self.parts), *self.parts[0].tensor.shape[1:])

    @property
    def dtype(self) -> str:
        return self.parts[0].tensor.dtype

    @property
    def own_encoding(self) -> Encoding | None:
        """The encoding that stores all parts as they are, if they have one in common."""
        found = {part.tensor.own_encoding for part in self.parts}
        ordered = any(part.tensor.order is not None for part in self.parts)
        return found.pop() if len(found) == 1 and not ordered else None

    def read(self, name: str, rows: slice | None = None) -> NDArray[np.float32]:
        return np.concatenate([p.tensor.read(p.name, r) for p, r in self._pieces(rows)])

    def read_quantized(self, name: str, rows: slice | None = None) -> KeptRows:
        pieces = [p.tensor.read_quantized(p.name, r) for p, r in self._pieces(rows)]
        parts = zip(*(piece.parts for piece in pieces), strict=True)
        return type(pieces[0])(*map(np.concatenate, parts))

    def _pieces(self, rows: slice | None) -> Iterator[tuple[RowRange, slice]]:
        start, stop, _ = (rows or slice(None)).indices(self.shape[0])
        for part in self.parts:
            size = part.last - part.first
            begin, end = max(0, start), min(size, stop)
            if begin < end:
                yield part, slice(part.first + begin, part.first + end)
            start, stop = start - size, stop - size


def joined_experts(tensors: Mapping[str, ReadableTensor], path: Path) -> dict[str, ReadableTensor]:
    """The tensors, with those of experts brought to the form that models ask for."""
    joined: dict[str, ReadableTensor] = {}
    apart: dict[str, dict[int, RowRange]] = {}
    for name, tensor in tensors.items():
        if match := _ONE.fullmatch(name):
            part = _PARTS.get(match["part"], match["part"])
            key = f"{match['layer']}mlp.experts.{part}.weight"
            row_range = RowRange(name, tensor, 0, tensor.shape[0] if tensor.shape else 0)
            apart.setdefault(key, {})[int(match["number"])] = row_range
        elif (
            (match := _ALL.fullmatch(name))
            and isinstance(tensor, StoredTensor)
            and len(tensor.shape) == 3
        ):
            part = match["part"].removeprefix("experts.")
            joined |= _of_all(f"{match['layer']}mlp.experts", _PARTS.get(part, part), name, tensor)
        elif match := _ROUTER.fullmatch(name):
            joined[f"{match['layer']}mlp.gate.weight"] = tensor
        else:
            joined[name] = tensor
    for key, found in apart.items():
        missing = sorted(set(range(len(found))) - found.keys())
        shapes = {part.tensor.shape for part in found.values()}
        if missing or len(shapes) > 1:
            problem = f"no expert {missing[0]}" if missing else "experts of different sizes"
            raise CheckpointError(
                f"{path} has {problem} among those of {key}", "Fetch the checkpoint again"
            )
        joined[key] = StackedTensor(tuple(part for _, part in sorted(found.items())))
    return joined


def _of_all(
    experts: str, part: str, name: str, tensor: StoredTensor
) -> Iterator[tuple[str, ReadableTensor]]:
    """The matrices of a tensor [experts, rows, columns]; gate and up lie in one, gate first."""
    count, rows, columns = tensor.shape
    flat = replace(tensor, shape=(count * rows, columns))
    if part != "gate_up_proj":
        yield f"{experts}.{part}.weight", flat
        return
    for half, first, last in (("gate_proj", 0, rows // 2), ("up_proj", rows // 2, rows)):
        parts = (RowRange(name, flat, e * rows + first, e * rows + last) for e in range(count))
        yield f"{experts}.{half}.weight", StackedTensor(tuple(parts))
