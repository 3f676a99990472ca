"""Rewrites of a graph that do not change what it computes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np

from satchel.graph.ir import Graph, Node, Value, constant_name, largest
from satchel.graph.ops import find_op
from satchel.graph.passes.attention_fusion import fuse_attention
from satchel.graph.passes.fusion import fold_affine_into_layers, fuse_activations, fuse_residuals
from satchel.graph.passes.layout import simplify_moves, sink_transposes
from satchel.graph.passes.row_moves import merge_row_moves

Pass = Callable[[Graph], None]

GATES = {"silu": "silu_mul", "gelu_tanh": "gelu_tanh_mul"}


def remove_dead_nodes(graph: Graph) -> None:
    """Drop nodes whose results nobody reads. A write to a state is always kept."""
    needed = {id(v) for v in graph.outputs}
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if any(id(v) in needed or v.state for v in node.outputs):
            needed.update(id(v) for v in node.inputs if v is not None)
            kept.append(node)
    graph.nodes = kept[::-1]


def fold_constants(graph: Graph) -> None:
    """Compute now what depends on constants only."""
    kept: list[Node] = []
    for node in graph.nodes:
        arrays = [v.constant if v else None for v in node.inputs]
        foldable = all(v is None or v.constant is not None for v in node.inputs)
        if foldable and not any(v in graph.outputs for v in node.outputs):
            results = find_op(node.op).reference(arrays, node.attrs)  # type: ignore[arg-type]
            for value, result in zip(node.outputs, results, strict=True):
                value.constant = np.asarray(result)
                value.name = constant_name(value.name, value.constant)
        else:
            kept.append(node)
    graph.nodes = kept


def merge_equal_nodes(graph: Graph) -> None:
    """Compute once what two nodes would compute from the same inputs."""
    first: dict[tuple[object, ...], Node] = {}
    replaced: dict[int, Value] = {}
    kept: list[Node] = []
    for node in graph.nodes:
        node.inputs = [replaced.get(id(v), v) for v in node.inputs]
        key = (node.op, *(id(v) for v in node.inputs), *sorted(node.attrs.items()))
        twin = first.get(key)
        touches_state = any(v is not None and v.state for v in [*node.inputs, *node.outputs])
        is_output = any(v in graph.outputs for v in node.outputs)
        if twin is None or touches_state or is_output:
            first.setdefault(key, node)
            kept.append(node)
        else:
            for mine, theirs in zip(node.outputs, twin.outputs, strict=True):
                replaced[id(mine)] = theirs
    graph.nodes = kept


def fuse_gates(graph: Graph) -> None:
    """silu(gate) * up becomes one node, and so does gelu's."""
    uses = Counter(id(v) for node in graph.nodes for v in node.inputs if v is not None)
    uses.update(id(v) for v in graph.outputs)
    makers = {id(v): node for node in graph.nodes for v in node.outputs}
    gone: set[int] = set()
    for node in graph.nodes:
        if node.op != "mul":
            continue
        for gate, up in (node.inputs, node.inputs[::-1]):
            assert gate is not None and up is not None
            maker = makers.get(id(gate))
            if maker and maker.op in GATES and uses[id(gate)] == 1 and gate.type == up.type:
                node.op, node.inputs = GATES[maker.op], [maker.inputs[0], up]
                gone.add(id(maker))
                break
    graph.nodes = [node for node in graph.nodes if id(node) not in gone]


def write_states_last(graph: Graph) -> None:
    """What a state becomes is written when all that it was has been read.

    If it becomes what another state was, that is copied first.
    """
    writes = [node for node in graph.nodes if node.op == "state_write"]
    nodes = [node for node in graph.nodes if node.op != "state_write"]
    for write in writes:
        source = write.inputs[1]
        assert source is not None
        if source.state and len(writes) > 1:
            copied = Value(f"{source.name}.before", source.type)
            nodes.append(Node("reshape", [source], [copied], {"shape": largest(source.shape)}))
            write.inputs[1] = copied
    graph.nodes = nodes + writes


STANDARD: tuple[Pass, ...] = (fold_constants, merge_equal_nodes, fuse_gates, remove_dead_nodes)


# For graphs of other programs, whose images are channels-first and whose parameters are constants.
# These leave attention and moves as they are written.
WRITTEN_OUT: tuple[Pass, ...] = (
    fold_constants,
    sink_transposes,
    simplify_moves,
    remove_dead_nodes,
    fold_affine_into_layers,
    fuse_activations,
    merge_equal_nodes,
    fuse_gates,
    remove_dead_nodes,
    write_states_last,
)
IMPORTED: tuple[Pass, ...] = (
    *WRITTEN_OUT,
    fuse_attention,
    merge_row_moves,
    simplify_moves,
    remove_dead_nodes,
    write_states_last,
)


# For layers that are to run in floats; integer layers take residuals in as they are made.
FLOATS: tuple[Pass, ...] = (fuse_residuals, fuse_activations)


def optimize(graph: Graph, passes: tuple[Pass, ...] = STANDARD) -> Graph:
    """Run the passes, by default the standard ones, and check the result."""
    for run in passes:
        run(graph)
    graph.check()
    return graph
