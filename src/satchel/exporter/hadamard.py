"""The Hadamard transform that SpinQuant's checkpoints need before some of their layers."""

from __future__ import annotations

from collections.abc import Container

from satchel.errors import CheckpointError
from satchel.graph.ir import Graph, Node, Value


def rotate_inputs(graph: Graph, tensors: Container[str]) -> None:
    """Put the transform before every linear layer whose weight is one of these tensors."""
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
    size = x.shape[-1]
    if not isinstance(size, int) or size & (size - 1):
        raise CheckpointError(
            f"{tensor} has {size} columns, and a Hadamard transform needs a power of two",
            "Use a checkpoint without SpinQuant",
        )
    rotated = Value(f"{x.name}.rotated", x.type)
    nodes.append(Node("hadamard", [x], [rotated], {"block": size}))
    return rotated
