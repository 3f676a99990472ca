"""Moves of whole rows: several become one copy, and opposite ones around row-wise layers none.

Windows of an image are rows in another order, so that rolling, cutting into windows and the way
back need not be done where attention can be told which rows belong together.
"""

from __future__ import annotations

import numpy as np

from satchel.graph.ir import Graph, Node, Value
from satchel.graph.passes.origins import MOVES, Origins, elements, known_shape


def merge_row_moves(graph: Graph) -> None:
    """Read what moves end up where they began from the source, and chains of moves as one copy."""
    origins = Origins(graph, "moved")
    kept: list[Node] = []
    replaced: dict[int, Value] = {}
    for node in graph.nodes:
        for value in node.inputs if node.op not in MOVES else ():
            if value is not None and id(value) not in replaced:
                replaced[id(value)] = _nearest(value, origins, kept)
        result = node.outputs[0]
        near = result
        if node.op in MOVES and id(result) in origins.outputs:
            near = _nearest(result, origins, kept)
        same = near is result
        kept.append(node if same else _reshape_to(near, result))
    for node in kept:
        if node.op not in MOVES:
            node.inputs = [replaced.get(id(v), v) for v in node.inputs]
    graph.nodes = kept


def _nearest(value: Value, origins: Origins, nodes: list[Node]) -> Value:
    """The same elements with fewer moves before them; what makes them is appended."""
    maker = origins.makers.get(id(value))
    found = origins.of(value) if maker is not None and maker.op in MOVES else None
    if found is None or found.source is value:
        return value
    planned = id(found.source) in origins.planned
    if found.is_identity():
        everyone = {id(n) for n in origins.readers.get(id(value), [])}
        if planned and not origins.replaces(found.source, everyone):
            return value
        if not planned and _real_moves(value, found.source, origins) == 0:
            return value
        origins.take_planned(found.source, nodes)
        return _reshaped(found.source, known_shape(value), origins, nodes)
    rows = found.rows(found.width)
    if planned or rows is None or _real_moves(value, found.source, origins) < 2:
        return value
    if value.dtype != found.source.dtype:
        return value
    flat = _reshaped(
        found.source, (elements(found.source) // found.width, found.width), origins, nodes
    )
    numbers = origins.constant("rows", rows.astype(np.int32))
    picked = origins.node("take", [flat, numbers], {"axis": 0}).outputs[0]
    origins.take_planned(picked, nodes)
    return _reshaped(picked, known_shape(value), origins, nodes)


def _reshape_to(value: Value, result: Value) -> Node:
    return Node("reshape", [value], [result], {"shape": known_shape(result)})


def _real_moves(value: Value, source: Value, origins: Origins) -> int:
    """How many nodes between the two copy something."""
    seen: set[int] = set()
    waiting, count = [value], 0
    while waiting:
        one = waiting.pop()
        node = origins.makers.get(id(one))
        if one is source or node is None or id(node) in seen or node.op not in MOVES:
            continue
        seen.add(id(node))
        count += node.op != "reshape"
        waiting += [v for v in node.inputs if v is not None]
    return count


def _reshaped(value: Value, shape: tuple[int, ...], origins: Origins, nodes: list[Node]) -> Value:
    if known_shape(value) == shape:
        return value
    made = origins.node("reshape", [value], {"shape": shape}).outputs[0]
    origins.take_planned(made, nodes)
    return made
