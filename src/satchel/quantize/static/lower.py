"""Writes a planned float graph with integer ops: codes in, codes out, weights of 8 bits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.graph.builder import GraphBuilder
from satchel.graph.ir import Attribute, DType, Graph, Node, TensorType, Value
from satchel.graph.ops import find_op
from satchel.graph.ops.attention_codes import ZERO
from satchel.graph.reference import WeightReader
from satchel.quantize.static.encoding import ActivationEncoding
from satchel.quantize.static.plan import KEEP_CODES, LAYERS, PAIRS, TABULATED, IntegerPlan
from satchel.quantize.static.qdq import quantize_rows

Array = NDArray[Any]
MOST_STEPS = 128.0  # of a result, to one step of the sums that it is made of


@dataclass
class LoweredGraph:
    """``codes`` are the weights that became whole numbers, by name. ``coded`` and ``floats`` are
    the values that stand for those of the float graph, by their names there.
    """

    graph: Graph
    codes: dict[str, Array] = field(default_factory=dict)
    coded: dict[str, Value] = field(default_factory=dict)
    floats: dict[str, Value] = field(default_factory=dict)


def lower_integers(graph: Graph, plan: IntegerPlan, read_weight: WeightReader) -> LoweredGraph:
    """The graph that computes with codes what the rounded run of the plan computes."""
    return _Lowering(graph, plan, read_weight).run()


class _Lowering:
    def __init__(self, graph: Graph, plan: IntegerPlan, read_weight: WeightReader) -> None:
        self.source = graph
        self.plan = plan
        self.read_weight = read_weight
        self.builder = GraphBuilder(graph.name)
        self.floats: dict[int, Value] = {}  # by the id of a value of the float graph
        self.coded: dict[int, Value] = {}
        self.codes: dict[str, Array] = {}
        self.vectors: dict[str, Array] = {}
        self.outputs = {id(v) for v in graph.outputs}
        self.read_as_float = set(self.outputs)
        for node in graph.nodes:
            if not plan.runs_on_codes(node):
                self.read_as_float |= {id(v) for v in node.inputs if v is not None}

    def run(self) -> LoweredGraph:
        for value in self.source.inputs:
            made = self.builder.input(value.name, value.shape, value.dtype)
            self.floats[id(value)] = made
        self.builder.graph.bounds = self.source.bounds
        for node in self.source.nodes:
            if id(node) in self.plan.merged:
                continue
            if id(node) in self.plan.residuals or self.plan.runs_on_codes(node):
                self._integer(node)
            else:
                self._float(node)
        for value in self.source.outputs:
            self.builder.output(self.as_float(value), value.name)
        names = {id(v): v.name for v in self.source.values()}
        coded, floats = (
            {names[number]: value for number, value in made.items()}
            for made in (self.coded, self.floats)
        )
        return LoweredGraph(self.builder.finish(), self.codes, coded, floats)

    # --- a value in either form ---

    def encoding(self, value: Value) -> ActivationEncoding:
        return self.plan.encodings[value.name]

    def as_codes(self, value: Value) -> Value:
        if id(value) not in self.coded:
            one = self.encoding(value)
            steps: dict[str, Attribute] = {"scale": one.scale, "zero": one.zero_point}
            self.coded[id(value)] = self.builder.quantize(self.floats[id(value)], **steps)
        return self.coded[id(value)]

    def as_float(self, value: Value) -> Value:
        if value.weight or value.constant is not None:
            return value
        if value.state:
            return self._state(value)
        if id(value) not in self.floats:
            one = self.encoding(value)
            steps: dict[str, Attribute] = {"scale": one.scale, "zero": one.zero_point}
            self.floats[id(value)] = self.builder.dequantize(self.coded[id(value)], **steps)
        return self.floats[id(value)]

    def _others(self, node: Node) -> list[Value | None]:
        """What a node reads beside its first input: constants, or numbers that were computed."""
        return [None if v is None else self.as_float(v) for v in node.inputs[1:]]

    def _state(self, value: Value) -> Value:
        name = value.state
        assert name
        initial = self.source.initial.get(name)
        return self.builder.state(name, value.shape, value.dtype, initial)

    # --- nodes ---

    def _float(self, node: Node) -> None:
        inputs = [None if v is None else self.as_float(v) for v in node.inputs]
        result = node.outputs[0]
        attrs = dict(node.attrs)
        # Where only integer nodes read it, a norm gives codes.
        to_codes = node.op == "layer_norm" and id(result) not in self.read_as_float
        if to_codes and not self.plan.plain and result.name in self.plan.encodings:
            out = self.encoding(result)
            attrs["out_scale"], attrs["out_zero"] = out.scale, out.zero_point
        made = self.builder.node(node.op, *inputs, **attrs)
        (self.coded if made.dtype == DType.u8 else self.floats)[id(result)] = made

    def _integer(self, node: Node) -> None:
        residual = self.plan.residuals.get(id(node))
        result = node.outputs[0]
        if residual:
            layer = residual.layer
            self._layer(layer, result, residual.activation, residual.residual)
        elif node.op in LAYERS:
            self._layer(node, result, str(node.attrs.get("activation", "none")), None)
        elif node.op == "attention_qkv":
            self._attention(node, result)
        else:
            self.coded[id(result)] = self._follower(node, result)

    def _layer(self, node: Node, result: Value, activation: str, residual: Value | None) -> None:
        x, weight = node.inputs[0], node.inputs[1]
        assert x is not None and weight is not None and weight.weight is not None
        name = weight.name
        rows, scales = quantize_rows(self.read_weight(weight.weight))
        stored = self.builder.weight(name, rows.shape, weight.weight.role, dtype=DType.i8)
        self.codes[name] = rows
        attrs: dict[str, Attribute] = {k: v for k, v in node.attrs.items() if k in _WINDOW}
        one = self.encoding(x)
        attrs["x_zero"] = one.zero_point
        if activation != "none":
            attrs["activation"] = activation
        scale = (scales * np.float32(one.scale)).astype(np.float32)
        inputs: list[Value | None] = [self.as_codes(x), stored]
        inputs.append(self._vector(f"{name}.scale", scale))
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        heads = self.plan.heads.get(id(result))
        if heads is not None:
            # Each head's own step is part of the scale, so that the result's step is 1.
            steps = heads.by_output(len(scales) // heads.scales.size)
            inputs[2] = self._vector(f"{name}.scale", scale / steps)
            if bias is not None and bias.constant is not None:
                bias = self._vector(f"{name}.bias", bias.constant / steps)
        inputs.append(bias)
        if residual is not None:
            other = self.encoding(residual)
            inputs.append(self.as_codes(residual))
            attrs["residual_scale"], attrs["residual_zero"] = other.scale, other.zero_point
        while inputs[-1] is None:
            inputs.pop()
        to_codes = self.plan.plain or id(result) not in self.read_as_float
        if self.plan.plain:
            self._widen(result, float(scale.max()))
        if to_codes:
            out = self.encoding(result)
            attrs["out_scale"], attrs["out_zero"] = out.scale, out.zero_point
            if heads is not None:
                attrs["out_scale"], attrs["out_zero"] = 1.0, ZERO
        made = self.builder.node(f"q{node.op}", *inputs, **attrs)
        (self.coded if to_codes else self.floats)[id(result)] = made

    def _widen(self, result: Value, step: float) -> None:
        """Give a result that is next to nothing steps that its layer's sums can be counted in."""
        one = self.encoding(result)
        if step > MOST_STEPS * one.scale:
            self.plan.encodings[result.name] = replace(one, scale=step / MOST_STEPS)

    def _attention(self, node: Node, result: Value) -> None:
        x = node.inputs[0]
        assert x is not None
        scales = self.builder.constant("heads", self.plan.heads[id(node)].scales)
        attrs = dict(node.attrs)
        to_codes = id(result) not in self.read_as_float
        if to_codes:
            out = self.encoding(result)
            attrs["out_scale"], attrs["out_zero"] = out.scale, out.zero_point
        inputs = [self.as_codes(x), scales, *self._others(node)]
        made = self.builder.node("qattention_qkv", *inputs, **attrs)
        (self.coded if to_codes else self.floats)[id(result)] = made

    def _follower(self, node: Node, result: Value) -> Value:
        """A node that is no layer, on codes."""
        limit = node.op if id(node) in self.plan.limited else "none"
        node = self.plan.limited.get(id(node), node)
        first = node.inputs[0]
        assert first is not None
        out = self.encoding(result)
        ends: dict[str, Attribute] = {"out_scale": out.scale, "out_zero": out.zero_point}
        if node.op in KEEP_CODES:
            attrs = dict(node.attrs)
            if node.op == "pad":
                attrs["value"] = float(self.encoding(first).zero_point)
            self.plan.encodings[result.name] = self.encoding(first)
            inputs = [self.as_codes(first), *self._others(node)]
            return self.builder.node(node.op, *inputs, **attrs)
        if node.op in PAIRS:
            second = node.inputs[1]
            assert second is not None
            a, b = self.encoding(first), self.encoding(second)
            steps: dict[str, Attribute] = {"a_scale": a.scale, "a_zero": a.zero_point}
            steps |= {"b_scale": b.scale, "b_zero": b.zero_point}
            if limit != "none":
                steps["activation"] = limit
            both = self.as_codes(first), self.as_codes(second)
            return self.builder.node(f"q{node.op}", *both, **steps, **ends)
        if node.op == "reduce_mean":
            one = self.encoding(first)
            steps = {"x_scale": one.scale, "x_zero": one.zero_point}
            kept = {k: node.attrs[k] for k in ("axes", "keepdims") if k in node.attrs}
            return self.builder.node("qmean", self.as_codes(first), **kept, **steps, **ends)
        if node.op == "concat":
            parts = [self._rescaled(v, out) for v in node.inputs if v is not None]
            return self.builder.node("concat", *parts, **node.attrs)
        assert node.op in TABULATED
        table = self._table(self.encoding(first), out, node)
        return self.builder.node("lookup", self.as_codes(first), table)

    def _rescaled(self, value: Value, out: ActivationEncoding) -> Value:
        have = self.encoding(value)
        if have == out:
            return self.as_codes(value)
        if self.plan.plain:
            steps: dict[str, Attribute] = {"scale": out.scale, "zero": out.zero_point}
            return self.builder.node("quantize", self.as_float(value), **steps)
        table = self._table(have, out, None)
        return self.builder.node("lookup", self.as_codes(value), table)

    def _table(self, have: ActivationEncoding, out: ActivationEncoding, node: Node | None) -> Value:
        numbers = have.dequantize(np.arange(256, dtype=np.uint8))
        if node is not None:
            with np.errstate(all="ignore"):
                (numbers,) = find_op(node.op).reference([numbers], node.attrs)
        return self.builder.constant("table", out.quantize(numbers))

    def _vector(self, name: str, array: Array) -> Value:
        """A constant of a layer. One that is used again may read numbers of another scale."""
        unique, number = name, 2
        while not np.array_equal(self.vectors.setdefault(unique, array), array):
            unique, number = f"{name}#{number}", number + 1
        return Value(unique, TensorType(array.shape), constant=array)


_WINDOW = {"kernel", "stride", "padding", "dilation", "groups"}


def read_lowered(codes: Mapping[str, Array], read_weight: WeightReader) -> WeightReader:
    """Gives whole numbers for the weights that became them, and the others as before."""
    return lambda weight: codes[weight.name] if weight.name in codes else read_weight(weight)
