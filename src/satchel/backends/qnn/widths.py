"""Which values have 16 bits where the others have 8, and the changes between them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from satchel.backends.qnn.annotate import Encodings, is_cache, is_copy
from satchel.backends.qnn.ops import LAYERS, is_activation
from satchel.backends.qnn.row_parts import RowPart
from satchel.graph.ir import Graph, Node, Value
from satchel.quantize.static import ActivationEncoding

WIDE = "@16"  # behind the name of what has 16 bits here and 8 elsewhere


def layer_widths(graph: Graph, layers: Mapping[str, int], usual: int) -> dict[str, int]:
    """The bits of those values that have others than the ``usual``, so that some layers, by their
    weights' names, are computed with theirs.

    16 where 8 are usual go with all on the way to a layer. 8 where 16 are usual are what it makes:
    what it reads is rounded to 8 for it alone.
    """
    own = {name for name in matrices(graph) if layers.get(RowPart.named(name).weight, 0)}
    chosen = {name: layers[RowPart.named(name).weight] for name in own}
    wide = {name for name, bits in chosen.items() if bits == 16 and usual == 8}
    narrow = {name for name, bits in chosen.items() if bits == 8 and usual == 16}
    made = {
        node.outputs[0].name: 8
        for node in graph.nodes
        if node.op in LAYERS and node.inputs[1] is not None and node.inputs[1].name in narrow
    }
    return wide_values(graph, wide) | made


def wide_values(graph: Graph, layers: Collection[str]) -> dict[str, int]:
    """The values that have 16 bits so that some layers, by their weights' names, compute well.

    A layer is given 16 bits, and so is all on the way to it from the layers before.
    """
    makers = {id(v): node for node in graph.nodes for v in node.outputs}
    open_nodes = [
        node
        for node in graph.nodes
        if node.op in LAYERS and node.inputs[1] is not None and node.inputs[1].name in layers
    ]
    found: set[str] = {node.outputs[0].name for node in open_nodes}
    while open_nodes:
        for value in open_nodes.pop().inputs:
            if value is None or not is_activation(value) or value.name in found:
                continue
            found.add(value.name)
            maker = makers.get(id(value))
            if maker is not None and maker.op not in LAYERS:
                open_nodes.append(maker)
    return dict.fromkeys(found, 16)


def constant_bits(name: str, bits: int) -> int:
    return 16 if name.endswith(WIDE) else bits


def change_widths(graph: Graph, encodings: Encodings, usual: int) -> Graph:
    """A graph in which all that a node reads has as many bits as what it makes.

    But for a KV cache: its 8 bits are multiplied by 16 as they are. Stored arrays have the
    ``usual`` bits. The encodings of copies are added to ``encodings``.
    """
    copies: dict[str, Value] = {}
    nodes: list[Node] = []
    cached = _from_caches(graph)
    for node in graph.nodes:
        bits = encodings[node.outputs[0].name].bits
        inputs: list[Value | None] = []
        for place, value in enumerate(node.inputs):
            if value is None or (node.op in LAYERS and place) or value.name in cached:
                inputs.append(value)
                continue
            here = encodings[value.name].bits if is_activation(value) else usual
            if bits == here or is_copy(node):
                inputs.append(value)
                continue
            name = f"{value.name}{WIDE if bits == 16 else '@8'}"
            if name not in copies:
                copies[name] = made = Value(name, value.type)
                if value.weight is not None:
                    made.weight = replace(value.weight, name=name)
                elif value.constant is not None:
                    made.constant = value.constant
                else:
                    one = encodings[value.name]
                    encodings[name] = ActivationEncoding.of_range(one.low, one.high, bits)
                    nodes.append(Node("affine", [value], [made], {"scale": 1.0}))
            inputs.append(copies[name])
        nodes.append(Node(node.op, inputs, node.outputs, node.attrs))
    return Graph(graph.name, graph.inputs, graph.outputs, nodes)


def _from_caches(graph: Graph) -> set[str]:
    """Values that hold a cache, in whatever shape."""
    found = {v.name for v in graph.inputs if is_cache(v.name)}
    for node in graph.nodes:
        names = {v.name for v in node.inputs if v is not None}
        if node.op in ("concat", "reshape") and names & found:
            found |= names | {node.outputs[0].name}
    return found


def exact_weights(graph: Graph, encodings: Mapping[str, ActivationEncoding]) -> set[str]:
    """Names of stored arrays that are not rounded to 8 or 16 bits."""
    found: set[str] = set()
    for node in graph.nodes:
        names = [v.name if v is not None else "" for v in node.inputs]
        narrow = encodings[node.outputs[0].name].bits == 8
        if node.op in LAYERS or (node.op == "layer_norm" and narrow):
            found |= set(names[2:])
        elif node.op == "take":
            found.add(names[1])
    return found


def matrices(graph: Graph) -> set[str]:
    """Names of the layers' weights."""
    return {str(n.inputs[1].name) for n in graph.nodes if n.op in LAYERS and n.inputs[1]}
