"""Where the nodes of a program run: which part goes to the NPU, and what the CPU does around it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from satchel.backends.base import refuse_experts
from satchel.backends.qnn.lowering.state import says_where
from satchel.backends.qnn.ops import HOST_OPS, LAYERS, is_activation, supports
from satchel.errors import GraphError, UnsupportedOperatorError
from satchel.graph.ir import Graph, Node, Value, largest
from satchel.speech.whisper import DECODE, ENCODE

METHOD = "forward"
BEFORE, NPU, AFTER = (f"{METHOD}.{part}" for part in ("before", "npu", "after"))
_HEAVY = LAYERS | {"matmul", "attention_full", "attention_qkv"}


@dataclass
class Placement:
    """Graphs by their names: ``forward`` alone if all of it runs on the NPU, or with its parts."""

    graphs: list[Graph]
    report: dict[str, Any] = field(default_factory=dict)

    @property
    def npu(self) -> Graph:
        return next((g for g in self.graphs if g.name == NPU), self.graphs[0])


def place_module(graph: Graph) -> Placement:
    """What the NPU does not take, and all before or after it, runs on the CPU.

    Each such node goes to the side that leaves the NPU most of the work.
    """
    if graph.states:
        named = [f"{name}: a buffer that the module changes" for name in graph.states]
        raise UnsupportedOperatorError(named, "Export this module for cpu.")
    reasons = {id(n): reason for n in graph.nodes if (reason := supports(n))}
    if not reasons:
        return Placement([graph], _counted(len(graph.nodes), []))
    refused = [node for node in graph.nodes if id(node) in reasons]
    best: tuple[float, set[int], set[int]] | None = None
    for leading in range(len(refused) + 1):
        before = _with_ancestors(graph, refused[:leading])
        after = _with_descendants(graph, refused[leading:])
        if before & after:
            continue
        work = sum(_work(n) for n in graph.nodes if id(n) not in before and id(n) not in after)
        if best is None or work > best[0]:
            best = (work, before, after)
    kept = best is not None and any(
        n.op in _HEAVY and id(n) not in best[1] | best[2] for n in graph.nodes
    )
    if best is None or not kept:
        named = sorted({f"{n.op}: {reasons[id(n)]}" for n in refused})
        raise UnsupportedOperatorError(
            named, "The NPU would be left with nothing to compute; export this module for cpu."
        )
    _, before, after = best
    parts = {BEFORE: before, AFTER: after}
    parts[NPU] = {id(n) for n in graph.nodes} - before - after
    names = [name for name in (BEFORE, NPU, AFTER) if parts[name]]
    graphs = [graph, *(_part(graph, name, parts[name]) for name in names)]
    return Placement(graphs, _report(graph, reasons, before, after))


def _with_ancestors(graph: Graph, nodes: Sequence[Node]) -> set[int]:
    found = {id(node) for node in nodes}
    read = {id(v) for node in nodes for v in node.inputs}
    for node in reversed(graph.nodes):
        if id(node) in found or any(id(v) in read for v in node.outputs):
            found.add(id(node))
            read |= {id(v) for v in node.inputs}
    return found


def _with_descendants(graph: Graph, nodes: Sequence[Node]) -> set[int]:
    found = {id(node) for node in nodes}
    made: set[int] = set()
    for node in graph.nodes:
        if id(node) in found or any(id(v) in made for v in node.inputs):
            found.add(id(node))
            made |= {id(v) for v in node.outputs}
    return found


def _work(node: Node) -> float:
    """About how many products a node takes; one for each number where it is no layer."""
    made = float(prod(largest(node.outputs[0].shape)))
    second = node.inputs[1] if len(node.inputs) > 1 else None
    if node.op in LAYERS and second is not None:
        return made * largest(second.shape)[1]
    first = node.inputs[0] if node.inputs else None
    return made * largest(first.shape)[-1] if node.op in _HEAVY and first is not None else made


def _part(graph: Graph, name: str, chosen: set[int]) -> Graph:
    """Some nodes as a graph of their own; what passes in and out keeps its name."""
    nodes = [node for node in graph.nodes if id(node) in chosen]
    made = {id(v) for node in nodes for v in node.outputs}
    wanted = {id(v) for v in graph.outputs}
    wanted |= {id(v) for n in graph.nodes if id(n) not in chosen for v in n.inputs}
    part = Graph(name)
    own: dict[int, Value] = {}
    for node in nodes:
        for value in node.inputs:
            if value is None or not is_activation(value) or id(value) in made:
                continue
            if id(value) not in own:
                own[id(value)] = Value(value.name, value.type)
                part.inputs.append(own[id(value)])
    part.nodes = [
        Node(n.op, [own.get(id(v), v) for v in n.inputs], n.outputs, n.attrs) for n in nodes
    ]
    part.outputs = [v for node in nodes for v in node.outputs if id(v) in wanted]
    part.check()
    return part


def place_program(graphs: Sequence[Graph]) -> dict[str, Any]:
    """Where each node of a language model's methods runs: its host's are known beforehand."""
    nodes = [node for graph in graphs for node in graph.nodes]
    refuse_experts(nodes, "the NPU")
    host = []
    for node in nodes:
        reason = supports(node)
        if reason is not None and node.op not in HOST_OPS:
            raise GraphError(f"{reason}", "Export this model for cpu.")
        host += [(node.op, reason)] if reason else []
    return _counted(len(nodes), host)


def place_speech(graphs: Sequence[Graph]) -> dict[str, Any]:
    """Where the nodes of a model that hears run: encoder and decoder on the NPU."""
    host, count = [], 0
    for graph in graphs:
        for node in graph.nodes:
            count += 1
            if graph.name not in (ENCODE, DECODE):
                host.append((node.op, "the times of words are found by the CPU"))
            elif says_where(graph, node):
                host.append((node.op, "it says that all of a window is listened to"))
            elif reason := supports(node):
                if node.op not in HOST_OPS:
                    raise GraphError(f"{graph.name}: {reason}", "Export this model for cpu.")
                host.append((node.op, reason))
    return _counted(count, host)


def _report(
    graph: Graph, reasons: dict[int, str], before: set[int], after: set[int]
) -> dict[str, Any]:
    host = []
    for node in graph.nodes:
        if id(node) in before | after:
            side = "before" if id(node) in before else "after"
            reason = reasons.get(id(node), f"it comes {side} what the NPU does not take")
            host.append((node.op, reason))
    return _counted(len(graph.nodes), host)


def _counted(nodes: int, host: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """``fallbacks`` has what the host runs, each kind once, with the reason."""
    fallbacks = [
        {"op": op, "nodes": count, "reason": reason}
        for (op, reason), count in Counter(host).items()
    ]
    counts = {"qnn": nodes - len(host)} | ({"cpu": len(host)} if host else {})
    return {"nodes": counts, "fallbacks": fallbacks}
