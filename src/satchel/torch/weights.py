"""The parameters of an imported graph as weights that the exporter streams into a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.checkpoints.base import Checkpoint, TensorInfo
from satchel.errors import CheckpointError
from satchel.graph.ir import Graph, RowSource, Value, Weight
from satchel.quantize.affine import QuantizedWeight

Array = NDArray[Any]

# Which input of an op is a matrix that kernels read packed, and its role for the recipe.
MATRIX_INPUTS = {
    "linear": "linear",
    "conv2d": "conv",
    "conv_transpose2d": "conv",
    "embedding": "embedding",
}


MIX = ".mix"  # the end of the name of a matrix that was no parameter


class ArrayCheckpoint(Checkpoint):
    """Arrays in memory, read like any checkpoint."""

    format = "pytorch"
    tokenizer = None

    def __init__(self, arrays: Mapping[str, Array], path: Path) -> None:
        self.arrays = dict(arrays)
        self.path = path
        self.config = {}
        self.generation = {}

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        return {name: TensorInfo(a.shape, "f32") for name, a in self.arrays.items()}

    def read(self, name: str, rows: slice | None = None) -> NDArray[np.float32]:
        array = self.arrays[name]
        return np.ascontiguousarray(array if rows is None else array[rows], dtype=np.float32)

    def read_quantized(self, name: str, rows: slice | None = None) -> QuantizedWeight:
        raise CheckpointError(f"{name} is not quantised", "Use a recipe that rounds it.")

    def close(self) -> None:
        self.arrays.clear()


def take_weights(graph: Graph) -> dict[str, Array]:
    """Turn the matrices of layers from constants into weights; returns their arrays by name."""
    arrays: dict[str, Array] = {}
    made: dict[tuple[int, str], Value] = {}
    taken = _other_constants(graph)
    for node in graph.nodes:
        role = MATRIX_INPUTS.get(node.op)
        value = node.inputs[1] if role else None
        if role is None or value is None or value.constant is None:
            continue
        role = "mix" if role == "linear" and value.name.split("#")[0].endswith(MIX) else role
        if (id(value), role) not in made:
            base = value.name.split("#")[0]  # one that was transposed keeps its name
            name, number = base, 2
            while name in arrays or name in taken:
                name, number = f"{base}#{number}", number + 1
            arrays[name] = value.constant
            shape = value.constant.shape
            weight = Weight(name, shape, role, RowSource(name))
            made[id(value), role] = Value(name, value.type, weight=weight)
        node.inputs[1] = made[id(value), role]
    return arrays


def _other_constants(graph: Graph) -> set[str]:
    """Names of the constants that stay what they are."""
    return {
        value.name
        for node in graph.nodes
        for place, value in enumerate(node.inputs)
        if value is not None
        and value.constant is not None
        and not (place == 1 and node.op in MATRIX_INPUTS)
    }
