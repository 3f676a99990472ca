"""Folds into a layer what is done to its result: factors, shifts, the activation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.graph.ir import Graph, Node, TensorType, Value, attr_float, attr_str
from satchel.graph.ops import Trait, ops_with

Array = NDArray[Any]

LAYERS = ops_with(Trait.layer)
# The ops that are an activation of a layer under the same name.
ACTIVATIONS = ops_with(Trait.activation)


def _users(graph: Graph) -> Counter[int]:
    uses = Counter(id(v) for node in graph.nodes for v in node.inputs if v is not None)
    uses.update(id(v) for v in graph.outputs)
    return uses


def _activation(node: Node) -> str | None:
    if node.op in ACTIVATIONS:
        return node.op
    if node.op == "clamp" and node.attrs == {"low": 0.0, "high": 6.0}:
        return "relu6"
    if node.op == "clamp" and node.attrs == {"low": 0.0}:
        return "relu"
    return None


def fuse_activations(graph: Graph) -> None:
    """A layer whose result only an activation reads applies it itself."""
    uses = _users(graph)
    makers = {id(v): node for node in graph.nodes for v in node.outputs}
    gone: set[int] = set()
    for node in graph.nodes:
        name = _activation(node)
        source = node.inputs[0] if name else None
        if name is None or source is None or uses[id(source)] != 1:
            continue
        layer = makers.get(id(source))
        if layer and layer.op in LAYERS and layer.attrs.get("activation", "none") == "none":
            layer.attrs["activation"] = name
            layer.outputs = node.outputs
            makers[id(node.outputs[0])] = layer
            gone.add(id(node))
    graph.nodes = [node for node in graph.nodes if id(node) not in gone]


def separate_activations(graph: Graph, kept: Collection[str]) -> None:
    """Undo that, but for some activations: others are nodes of their own again."""
    nodes: list[Node] = []
    for node in graph.nodes:
        nodes.append(node)
        name = attr_str(node.attrs, "activation", "none") if node.op in LAYERS else "none"
        if name == "none" or name in kept:
            continue
        (result,) = node.outputs
        before = Value(f"{result.name}.before", result.type)
        node.attrs = {key: value for key, value in node.attrs.items() if key != "activation"}
        node.outputs = [before]
        nodes.append(Node(name, [before], [result], {}))
    graph.nodes = nodes


def fuse_residuals(graph: Graph) -> None:
    """A convolution whose result is only added to another image like it adds that itself.

    It then runs where the sum stood, so that the other image is there.
    """
    uses = _users(graph)
    makers = {id(v): node for node in graph.nodes for v in node.outputs}
    order = {id(node): i for i, node in enumerate(graph.nodes)}
    moved: dict[int, Node] = {}  # by the id of the sum
    for node in graph.nodes:
        if node.op != "add":
            continue
        found = []
        for value, other in (node.inputs, node.inputs[::-1]):
            assert value is not None and other is not None
            layer = makers.get(id(value))
            if layer is not None and uses[id(value)] == 1 and _takes_residual(layer, value, other):
                found.append((order[id(layer)], layer, other))
        if found:
            # The later of two: what it reads lives until then anyway.
            _, layer, other = max(found, key=lambda item: item[0])
            bias = layer.inputs[2] if len(layer.inputs) > 2 else None
            layer.inputs = [*layer.inputs[:2], bias, other]
            layer.outputs = node.outputs
            makers[id(node.outputs[0])] = layer
            moved[id(node)] = layer
    late = {id(layer) for layer in moved.values()}
    kept = (moved.get(id(n), None if id(n) in late else n) for n in graph.nodes)
    graph.nodes = [node for node in kept if node is not None]


def _takes_residual(layer: Node, value: Value, other: Value) -> bool:
    return (
        layer.op == "conv2d"
        and len(layer.inputs) < 4
        and layer.attrs.get("groups", 1) == 1
        and layer.attrs.get("activation", "none") == "none"
        and value is not other
        and value.type == other.type
        and other.constant is None
    )


def fold_affine_into_layers(graph: Graph) -> None:
    """Batch norm and its like: constants that multiply or shift each channel of a layer's result
    become part of its weight and bias.
    """
    uses = _users(graph)
    makers = {id(v): node for node in graph.nodes for v in node.outputs}
    gone: set[int] = set()
    for node in graph.nodes:
        found = _affine_of(node)
        if found is None:
            continue
        source, factor, shift = found
        layer = makers.get(id(source))
        if (
            layer is None
            or layer.op not in LAYERS
            or uses[id(source)] != 1
            or layer.attrs.get("activation", "none") != "none"
            or node.outputs[0].shape != source.shape
        ):
            continue
        if not _fold(layer, factor, shift):
            continue
        layer.outputs = node.outputs
        makers[id(node.outputs[0])] = layer
        gone.add(id(node))
    graph.nodes = [node for node in graph.nodes if id(node) not in gone]


def _affine_of(node: Node) -> tuple[Value, Array | None, Array | None] | None:
    """(what is scaled and shifted, factor by channel, shift by channel)."""
    if node.op == "affine":
        source = node.inputs[0]
        assert source is not None
        factor = np.float32(attr_float(node.attrs, "scale", 1.0))
        shift = np.float32(attr_float(node.attrs, "shift", 0.0))
        return source, np.asarray(factor), np.asarray(shift)
    if node.op not in ("add", "sub", "mul", "div"):
        return None
    left, right = node.inputs
    assert left is not None and right is not None
    if right.constant is not None:
        source, constant = left, right
    elif left.constant is not None and node.op in ("add", "mul"):
        source, constant = right, left
    else:
        return None
    vector = _by_channel(constant)
    if vector is None:
        return None
    if node.op in ("add", "sub"):
        return source, None, vector if node.op == "add" else -vector
    with np.errstate(all="ignore"):
        factor_vector = vector if node.op == "mul" else np.float32(1) / vector
    return (source, factor_vector, None) if np.isfinite(factor_vector).all() else None


def _by_channel(value: Value) -> Array | None:
    """A constant that differs along the last dimension only."""
    array = value.constant
    assert array is not None
    if any(d != 1 for d in array.shape[:-1]) or array.dtype != np.float32:
        return None
    return array.reshape(-1)


def _fold(layer: Node, factor: Array | None, shift: Array | None) -> bool:
    weight = layer.inputs[1]
    bias = layer.inputs[2] if len(layer.inputs) > 2 else None
    if weight is None or weight.constant is None or (bias is not None and bias.constant is None):
        return False
    rows = len(weight.constant)
    old = np.zeros(rows, np.float32) if bias is None else bias.constant
    assert old is not None
    if factor is not None and not (factor == 1).all():
        wide = np.broadcast_to(factor.reshape(-1), (rows,))
        folded = weight.constant * wide[:, None]
        layer.inputs[1] = Value(weight.name, weight.type, constant=folded)
        old = old * wide
    new = old if shift is None else old + np.broadcast_to(shift.reshape(-1), (rows,))
    if bias is None and not new.any():
        return True
    name = bias.name if bias is not None else weight.name.removesuffix(".weight") + ".bias"
    value = Value(name, TensorType((rows,)), constant=np.asarray(new, np.float32))
    layer.inputs[2:] = [value]
    return True
