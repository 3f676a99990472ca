"""The Hadamard transform that SpinQuant's checkpoints need before some of their layers."""

from __future__ import annotations

from collections.abc import Container

import numpy as np

from satchel.errors import CheckpointError
from satchel.graph.ir import DType, Graph, Node, TensorType, Value, constant_name
from satchel.quantize.rotation.matrices import hadamard


def rotate_inputs(graph: Graph, tensors: Container[str]) -> None:
    """Put the transform before every linear layer whose weight is one of these tensors.

    A vector of p * q numbers is a matrix x [p, q], and its transform is H_p x H_q: two small
    products in place of one large one.
    """
    nodes: list[Node] = []
    for node in graph.nodes:
        weight = node.inputs[1].weight if node.op == "linear" and node.inputs[1] else None
        x = node.inputs[0]
        if weight and x is not None and weight.source.tensor in tensors:
            node.inputs[0] = _transform(x, weight.source.tensor, nodes)
        nodes.append(node)
    graph.nodes = nodes
    graph.check()


def _transform(x: Value, tensor: str, nodes: list[Node]) -> Value:
    rows, size = x.shape
    if not isinstance(size, int) or size & (size - 1):
        raise CheckpointError(
            f"{tensor} has {size} columns, and a Hadamard transform needs a power of two",
            "Use a checkpoint without SpinQuant",
        )
    p = 1 << (size.bit_length() - 1) // 2
    q = size // p

    def made(step: str, *shape: object) -> Value:
        return Value(f"{x.name}.{step}", TensorType((rows, *shape)))  # type: ignore[arg-type]

    def matrix(size: int) -> Value:
        signs = hadamard(size)
        assert signs is not None  # every power of two has one, in Sylvester's order
        data = (signs / np.sqrt(size)).astype(np.float32)
        type = TensorType(data.shape, DType.f32)
        return Value(constant_name("hadamard", data), type, constant=data)

    square, right = made("square", p, q), made("right", p, q)
    both, flat = made("both", p, q), made("rotated", size)
    nodes.append(Node("reshape", [x], [square], {"shape": (0, p, q)}))
    nodes.append(Node("matmul", [square, matrix(q)], [right]))
    nodes.append(Node("matmul", [matrix(p), right], [both]))
    nodes.append(Node("reshape", [both], [flat], {"shape": (0, size)}))
    return flat
