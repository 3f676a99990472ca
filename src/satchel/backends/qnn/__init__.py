"""The Hexagon NPU of Qualcomm's chips, with Qualcomm's own compiler.

Its verbs: ``supports`` says whether it takes a node, ``place`` reports where the nodes of some
graphs will run; what the NPU does not take is run by the host.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from satchel.backends.qnn.lower import HOST_OPS, NPU_OPS
from satchel.errors import GraphError
from satchel.graph.ir import Graph, Node

__all__ = ["place", "supports"]


def supports(node: Node) -> str | None:
    """None if the NPU runs this node, or the reason why it does not."""
    if node.op in NPU_OPS:
        return None
    return HOST_OPS.get(node.op, f"the NPU backend has no op {node.op}")


def place(graphs: Sequence[Graph]) -> dict[str, Any]:
    """Where each node runs; ``fallbacks`` has the host's, each kind once, with the reason."""
    counts: Counter[str] = Counter()
    fallbacks: dict[str, dict[str, Any]] = {}
    for graph in graphs:
        for node in graph.nodes:
            reason = supports(node)
            counts["qnn" if reason is None else "cpu"] += 1
            if reason is None:
                continue
            if node.op not in HOST_OPS:
                raise GraphError(f"{graph.name}: {reason}", "Export this model for cpu.")
            entry = fallbacks.setdefault(node.op, {"op": node.op, "nodes": 0, "reason": reason})
            entry["nodes"] += 1
    return {"nodes": dict(counts), "fallbacks": list(fallbacks.values())}
