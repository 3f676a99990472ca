"""Splits the NPU's graph into pieces that are compiled and loaded one by one.

A graph may be cut wherever only one value passes from what comes before to what comes after: in
a decoder, that is the stream of hidden states between layers, and between their halves.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from satchel.backends.qnn.ops import is_activation
from satchel.errors import ConfigError
from satchel.graph.ir import Graph, Node, TensorType, Value

NodeSize = Callable[[Node], int]


def cut_points(graph: Graph) -> list[int]:
    """Numbers of the nodes before which the graph may be cut."""
    last_use: dict[int, int] = {}
    for number, node in enumerate(graph.nodes):
        for value in node.inputs:
            if value is not None and is_activation(value):
                last_use[id(value)] = number
    inputs = {id(v) for v in graph.inputs}
    live: set[int] = set()
    points = []
    for number, node in enumerate(graph.nodes):
        if number and len(live) == 1:
            points.append(number)
        live |= {id(v) for v in node.outputs if id(v) in last_use}
        live -= {key for key in live | inputs if last_use.get(key) == number}
    return points


def split(graph: Graph, cuts: Sequence[int]) -> list[Graph]:
    """The pieces between the cuts. What passes from one to the next keeps its name."""
    made: dict[int, Value] = {}  # what an earlier piece computed, by value
    wanted = {id(v) for v in graph.outputs}
    pieces = []
    bounds = [0, *cuts, len(graph.nodes)]
    for number, (start, stop) in enumerate(itertools.pairwise(bounds)):
        piece = Graph(f"{graph.name}.{number}")
        own: dict[int, Value] = {}
        nodes = graph.nodes[start:stop]
        outputs = {id(v) for node in nodes for v in node.outputs}
        given = {id(v): v for v in graph.inputs}
        for node in nodes:
            for value in node.inputs:
                if value is None or not is_activation(value) or id(value) in own:
                    continue
                if id(value) in outputs:
                    own[id(value)] = value
                elif id(value) in given or id(value) in made:
                    own[id(value)] = Value(value.name, TensorType(value.shape, value.dtype))
                    piece.inputs.append(own[id(value)])
        piece.nodes = [
            Node(n.op, [own.get(id(v), v) for v in n.inputs], n.outputs, n.attrs) for n in nodes
        ]
        later = {id(v) for n in graph.nodes[stop:] for v in n.inputs if v is not None}
        for node in nodes:
            for value in node.outputs:
                made[id(value)] = value
                if id(value) in wanted or id(value) in later:
                    piece.outputs.append(value)
        pieces.append(piece)
    return pieces


def choose_cuts(graph: Graph, size: NodeSize, count: int) -> list[int]:
    """Cuts that make ``count`` pieces, the largest as small as can be."""
    points = cut_points(graph)
    if count > len(points) + 1:
        raise ConfigError(
            f"the model can be split into {len(points) + 1} shards at most, not {count}",
            "Use a smaller --num-sharding.",
        )
    if count == 1:
        return []
    bounds = [0, *points, len(graph.nodes)]
    sizes = [
        sum(size(node) for node in graph.nodes[start:stop])
        for start, stop in itertools.pairwise(bounds)
    ]
    low, high = max(sizes), sum(sizes)
    while low < high:  # the least limit under which so many pieces are enough
        middle = (low + high) // 2
        if len(_fill(sizes, middle)) + 1 <= count:
            high = middle
        else:
            low = middle + 1
    starts = _fill(sizes, low)
    while len(starts) + 1 < count:  # fewer were needed: cut the largest further
        starts = _cut_largest(sizes, starts)
    return [bounds[start] for start in starts]


def needed_shards(graph: Graph, size: NodeSize, limit: int) -> int:
    """How many pieces it takes so that none is above the limit, but for single layers that are."""
    bounds = [0, *cut_points(graph), len(graph.nodes)]
    sizes = [
        sum(size(node) for node in graph.nodes[start:stop])
        for start, stop in itertools.pairwise(bounds)
    ]
    return len(_fill(sizes, limit)) + 1


def _fill(sizes: Sequence[int], limit: int) -> list[int]:
    """Where pieces begin if each takes as much as fits."""
    starts, total = [], 0
    for number, size in enumerate(sizes):
        if total and total + size > limit:
            starts.append(number)
            total = 0
        total += size
    return starts


def _cut_largest(sizes: Sequence[int], starts: list[int]) -> list[int]:
    bounds = [0, *starts, len(sizes)]
    spans = [(a, b) for a, b in itertools.pairwise(bounds) if b - a > 1]
    first, last = max(spans, key=lambda span: sum(sizes[slice(*span)]))
    return sorted([*starts, (first + last) // 2])
