"""The CPU backend: native kernels over packed weights.

Its verbs: ``supports`` says whether it takes a node, ``place`` reports where the nodes of some
graphs will run, ``compile`` is the methods section of a program, and ``load`` maps it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from satchel.errors import GraphError
from satchel.graph.ir import Graph, Node
from satchel.program.methods import encode_methods as compile
from satchel.runtime.program import load

__all__ = ["compile", "load", "place", "supports"]


def supports(node: Node) -> str | None:
    """None if the native core runs this node, or the reason why it does not."""
    from satchel import _native

    if node.op not in _native.ops():
        return f"the CPU backend has no kernel for {node.op}"
    return None


def place(graphs: Sequence[Graph]) -> dict[str, Any]:
    """Where each node runs. Nothing lies below the CPU, so what it refuses is an error."""
    counts: Counter[str] = Counter()
    for graph in graphs:
        for node in graph.nodes:
            reason = supports(node)
            if reason:
                raise GraphError(f"{graph.name}: {reason}")
            counts["cpu"] += 1
    return {"nodes": dict(counts), "fallbacks": []}
