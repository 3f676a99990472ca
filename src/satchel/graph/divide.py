"""Divides a graph into parts that run in different places, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

from satchel.graph.ir import Graph, Node, Value

CPU = "cpu"


def touches_state(node: Node) -> bool:
    return any(v is not None and v.state for v in [*node.inputs, *node.outputs])


def divide(graph: Graph, takes: Callable[[Node], bool], family: str) -> list[Graph]:
    """The graph as parts named ``METHOD.0.cpu``, ``METHOD.1.FAMILY``, …; none if all is the CPU's.

    Neighbours that run in the same place are one part.
    """
    where = {id(n): family if takes(n) else CPU for n in graph.nodes}
    if family not in where.values():
        return []
    runs = [(place, list(nodes)) for place, nodes in groupby(graph.nodes, lambda n: where[id(n)])]
    return [
        cut_out(graph, f"{graph.name}.{number}.{place}", nodes)
        for number, (place, nodes) in enumerate(runs)
    ]


def cut_out(graph: Graph, name: str, nodes: Sequence[Node]) -> Graph:
    """Some nodes as a graph of their own; what passes in and out keeps its name."""
    chosen = {id(node) for node in nodes}
    made = {id(v) for node in nodes for v in node.outputs}
    wanted = {id(v) for v in graph.outputs}
    wanted |= {id(v) for n in graph.nodes if id(n) not in chosen for v in n.inputs}
    part = Graph(name, states=graph.states, initial=graph.initial, caches=graph.caches)
    own: dict[int, Value] = {}
    for value in (v for node in nodes for v in node.inputs):
        if value is None or value.weight or value.constant is not None or value.state:
            continue
        if id(value) not in made and id(value) not in own:
            own[id(value)] = Value(value.name, value.type)
    part.inputs = list(own.values())
    part.nodes = [
        Node(n.op, [own.get(id(v), v) for v in n.inputs], n.outputs, n.attrs) for n in nodes
    ]
    part.outputs = [v for n in nodes for v in n.outputs if id(v) in wanted and not v.state]
    part.check()
    return part
