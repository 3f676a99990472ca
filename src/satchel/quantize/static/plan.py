"""Decides which nodes of a float graph run on 8-bit codes, and which values are rounded for them.

A layer (convolution, linear) runs on codes unless it is to stay in floats. What only moves,
adds, multiplies or maps numbers does so if everything that reads its result runs on codes too, so
that a chain of layers never leaves 8 bits, while the residual stream of a transformer, which a
norm reads, stays in floats. Attention runs on codes if an integer layer makes what it reads.

A plan that is ``plain`` has what every library of integer layers has, and no more: layers, sums and
products, from codes to codes, and what moves codes. Functions are floats between them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from satchel.graph.ir import DType, Graph, Node, Value
from satchel.graph.ops import Trait, ops_with
from satchel.graph.ops.quantized import LIMITS
from satchel.graph.passes.fusion import ACTIVATIONS
from satchel.quantize.static.encoding import ActivationEncoding
from satchel.quantize.static.heads import HeadSteps, feeding_layer

LAYERS = ops_with(Trait.integer_layer)
KEEP_CODES = ops_with(Trait.keeps_codes)
TABULATED = ops_with(Trait.tabulated)
PAIRS = ops_with(Trait.integer_pair)
MOST_COLUMNS = 65536


@dataclass(frozen=True)
class ResidualLayer:
    """A layer whose result is added to another value, then perhaps activated: one node."""

    layer: Node
    residual: Value
    activation: str
    last: Node  # the sum, or its activation


@dataclass
class IntegerPlan:
    """``encodings`` has, by name, the values that integer nodes read rounded."""

    nodes: set[int] = field(default_factory=set)  # ids of those that run on codes
    encodings: dict[str, ActivationEncoding] = field(default_factory=dict)
    residuals: dict[int, ResidualLayer] = field(default_factory=dict)  # by the id of the last node
    merged: set[int] = field(default_factory=set)  # ids of nodes that are part of another
    # What attention reads: by the id of its node, and of the result of the layer that makes it.
    heads: dict[int, HeadSteps] = field(default_factory=dict)
    plain: bool = False
    # Sums and products that are only limited afterwards, by the id of the node that does it.
    limited: dict[int, Node] = field(default_factory=dict)

    def runs_on_codes(self, node: Node) -> bool:
        return id(node) in self.nodes


def is_activation(value: Value | None) -> bool:
    return (
        value is not None
        and value.weight is None
        and value.constant is None
        and value.state is None
        and value.dtype == DType.f32
    )


def plan_integers(
    graph: Graph,
    encodings: Mapping[str, ActivationEncoding],
    float_layers: Collection[str] = (),
    heads: Mapping[str, HeadSteps] | None = None,
    plain: bool = False,
) -> IntegerPlan:
    """``encodings`` are those of all activations; ``float_layers`` names weights left alone;
    ``heads`` are the steps of what attention reads; ``plain`` uses no more than any library has.
    """
    readers: dict[int, list[Node]] = {}
    for node in graph.nodes:
        for value in node.inputs:
            if value is not None:
                readers.setdefault(id(value), []).append(node)
    outputs = {id(v) for v in graph.outputs}
    makers = {id(v): node for node in graph.nodes for v in node.outputs}
    plan = IntegerPlan(plain=plain)

    def limited_pair(node: Node) -> Node | None:
        """The sum or product that nothing but this node reads, which only limits it."""
        source = node.inputs[0] if node.op in LIMITS else None
        maker = makers.get(id(source))
        if maker is None or maker.op not in PAIRS or len(readers[id(source)]) > 1:
            return None
        ranged = all(v is not None and v.name in encodings for v in [*maker.inputs, source])
        return maker if ranged and _can_follow(maker) and id(source) not in outputs else None

    for node in reversed(graph.nodes):
        result = node.outputs[0]
        used = readers.get(id(result), [])
        inner = bool(used) and id(result) not in outputs and all(id(n) in plan.nodes for n in used)
        ranged = all(v.name in encodings for v in [*node.inputs, result] if v and is_activation(v))
        layer = _is_integer_layer(node, float_layers) and _ranged_input(node, encodings)
        if plain:
            layer = layer and result.name in encodings
            follows = _can_follow(node, tables=False) or limited_pair(node) is not None
        else:
            follows = _can_follow(node)
        if layer or (inner and ranged and follows):
            plan.nodes.add(id(node))
        steps = heads.get(node.inputs[0].name) if heads and node.inputs and node.inputs[0] else None
        if node.op == "attention_qkv" and steps is not None:
            feeding = feeding_layer(node, makers, readers)
            if feeding is not None and _is_integer_layer(feeding, float_layers):
                plan.nodes.add(id(node))
                plan.heads[id(node)] = plan.heads[id(feeding.outputs[0])] = steps
    plan.encodings = dict(encodings)
    for node in graph.nodes:
        source = node.inputs[0] if node.inputs else None
        if node.op in KEEP_CODES and plan.runs_on_codes(node) and source is not None:
            plan.encodings[node.outputs[0].name] = plan.encodings[source.name]
    if plain:
        for node in graph.nodes:
            pair = limited_pair(node) if plan.runs_on_codes(node) else None
            if pair is not None:
                plan.limited[id(node)] = pair
                plan.merged.add(id(pair))
                plan.encodings.pop(pair.outputs[0].name)
    else:
        _find_residuals(graph, plan, readers, outputs)
    return plan


def _ranged_input(node: Node, encodings: Mapping[str, ActivationEncoding]) -> bool:
    source = node.inputs[0]
    return source is not None and source.name in encodings


def _is_integer_layer(node: Node, float_layers: Collection[str]) -> bool:
    if node.op not in LAYERS or not is_activation(node.inputs[0]):
        return False
    weight = node.inputs[1]
    assert weight is not None
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    fits = weight.weight is not None and (bias is None or bias.constant is not None)
    columns = weight.shape[1]
    return (
        fits
        and isinstance(columns, int)
        and columns <= MOST_COLUMNS
        and (weight.name not in float_layers)
    )


def _can_follow(node: Node, tables: bool = True) -> bool:
    """Whether a node can run on codes at all; with tables, any function of a number can."""
    if node.outputs[0].dtype != DType.f32 or not is_activation(node.inputs[0]):
        return False
    if node.op in PAIRS or node.op == "concat":
        return all(map(is_activation, node.inputs))
    if node.op == "pad":
        return node.attrs.get("value", 0.0) == 0
    if node.op == "expand":
        return len(node.inputs) == 1
    tabulated = tables and node.op in TABULATED
    return node.op in KEEP_CODES or tabulated or node.op == "reduce_mean"


def _find_residuals(
    graph: Graph, plan: IntegerPlan, readers: Mapping[int, list[Node]], outputs: set[int]
) -> None:
    """Sums that a layer can take into its own result."""
    order = {id(node): i for i, node in enumerate(graph.nodes)}
    makers = {id(v): node for node in graph.nodes for v in node.outputs}
    for node in graph.nodes:
        if node.op != "add" or not plan.runs_on_codes(node):
            continue
        candidates: list[tuple[int, Node, Value]] = []
        for value, other in (node.inputs, node.inputs[::-1]):
            assert value is not None and other is not None
            layer = makers.get(id(value))
            if (
                layer is not None
                and layer.op in LAYERS
                and plan.runs_on_codes(layer)
                and id(layer) not in plan.merged
                and layer.attrs.get("activation", "none") == "none"
                and len(readers[id(value)]) == 1
                and value is not other
                and value.shape == other.shape == node.outputs[0].shape
            ):
                candidates.append((order[id(layer)], layer, other))
        if not candidates:
            continue
        _, layer, other = max(candidates, key=lambda one: one[0])
        found = ResidualLayer(layer, other, "none", node)
        after = readers[id(node.outputs[0])]
        if len(after) == 1 and after[0].op in ACTIVATIONS and plan.runs_on_codes(after[0]):
            found = replace(found, activation=after[0].op, last=after[0])
            plan.merged.add(id(node))
            plan.encodings.pop(node.outputs[0].name, None)
        plan.merged.add(id(layer))
        plan.encodings.pop(layer.outputs[0].name, None)
        plan.residuals[id(found.last)] = found
