"""The parameters of an imported graph as weights that the exporter streams into a file."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.checkpoints.base import Checkpoint, TensorInfo
from satchel.errors import CheckpointError
from satchel.graph.ir import Graph, Node, RowSource, TensorType, Value, Weight, attr_str
from satchel.quantize.affine import CodedMatrix, QuantizedWeight

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

    def __init__(
        self, arrays: Mapping[str, Array], path: Path, codes: Collection[str] = ()
    ) -> None:
        self.arrays = dict(arrays)
        self.codes = frozenset(codes)  # the arrays that hold codes, whose scales are 1
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
        if name not in self.codes:
            raise CheckpointError(f"{name} is not quantised", "Use a recipe that rounds it.")
        codes = self.read(name, rows).astype(np.int8)
        return QuantizedWeight(codes, np.ones((len(codes), 1), np.float16))

    def close(self) -> None:
        self.arrays.clear()


CODES = ".codes"  # the end of the name of a matrix of codes


def keep_codes(graph: Graph, coded: Sequence[CodedMatrix]) -> None:
    """Layers whose matrix comes quantised multiply its codes, and what they make is scaled: 32-bit
    scales stay exact. Their matrices are named as such."""
    nodes: list[Node] = []
    for node in graph.nodes:
        weight = node.inputs[1] if node.op == "linear" else None
        array = weight.constant if weight is not None else None
        found = next((c for c in coded if array is not None and _is_floats_of(array, c)), None)
        if found is None or weight is None:
            nodes.append(node)
            continue
        name = weight.name.split("#")[0]
        codes = _constant(f"{name}{CODES}", found.codes.astype(np.float32))
        steps: list[tuple[str, list[Value | None]]] = [("linear", [codes])]
        steps.append(("mul", [_constant(f"{name}.scale", found.scales)]))
        steps += [("add", [bias]) for bias in node.inputs[2:] if bias is not None]
        activation = attr_str(node.attrs, "activation", "none")
        steps += [(activation, [])] if activation != "none" else []
        value, result = node.inputs[0], node.outputs[0]
        for number, (op, others) in enumerate(steps):
            last = number == len(steps) - 1
            made = result if last else Value(f"{result.name}.{op}", result.type)
            nodes.append(Node(op, [value, *others], [made]))
            value = made
    graph.nodes = nodes


def _is_floats_of(array: Array, coded: CodedMatrix) -> bool:
    return array.shape == coded.floats.shape and np.array_equal(array, coded.floats)


def _constant(name: str, array: Array) -> Value:
    return Value(name, TensorType(array.shape), constant=array)


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
