"""Rotations that cannot be folded into weights and are computed when the model runs.

What the last layer of an MLP reads goes through a nonlinearity before, and queries and keys
through their rotary positions, so these are nodes of the graph. Both are their own inverse: one is
undone in the weight that follows, the other by itself when queries meet keys.
"""

from __future__ import annotations

from satchel.graph.ir import DType, Graph, Node, Value
from satchel.quantize.rotation.plan import RotationPlan


def insert_rotations(graph: Graph, plan: RotationPlan) -> None:
    """Add the nodes to a method, and to the plan what becomes of the weights behind them."""
    nodes: list[Node] = []
    rotated: dict[int, Value] = {}

    def turn(value: Value | None) -> Value:
        assert value is not None
        if id(value) not in rotated:
            made = Value(f"{value.name}.rotated", value.type)
            nodes.append(Node("hadamard", [value], [made], {"block": block_of(value)}))
            rotated[id(value)] = made
        return rotated[id(value)]

    for node in graph.nodes:
        weight = node.inputs[1].weight if node.op == "linear" and node.inputs[1] else None
        what = plan.tensors.get(weight.source.tensor) if weight else None
        x = node.inputs[0]
        if what and what.hidden_rows and not (what.head_columns or what.hidden_columns):
            assert x is not None
            what.block_columns = block_of(x)
            node.inputs[0] = turn(x)
        elif node.op == "attention" and _is_rounded(node.inputs[1]):
            node.inputs[0] = turn(x)
        elif node.op == "cache_write" and _is_rounded(x) and str(x and x.state).endswith(".k"):
            node.inputs[1] = turn(node.inputs[1])
        nodes.append(node)
    graph.nodes = nodes
    graph.check()


def block_of(value: Value) -> int:
    """The largest power of two that divides the last dimension."""
    width = value.shape[-1]
    assert isinstance(width, int)
    return width & -width


def _is_rounded(cache: Value | None) -> bool:
    """Keys in a cache of floats have nothing to gain."""
    return cache is not None and cache.dtype == DType.u8
