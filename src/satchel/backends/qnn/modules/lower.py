"""From a module's graph to the ops that the NPU has, and which of its nodes can go there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

import numpy as np

from satchel.backends.qnn.annotate import is_activation
from satchel.backends.qnn.spelled import affine, gelu_by_tanh, silu
from satchel.errors import GraphError
from satchel.graph.builder import GraphBuilder
from satchel.graph.ir import (
    Attribute,
    DType,
    Graph,
    Node,
    Sym,
    Value,
    attr_float,
    attr_int,
    attr_ints,
    attr_str,
    largest,
)
from satchel.graph.passes import remove_dead_nodes

# Ops that the NPU runs as they are; the others are lowered to these.
PLAIN_OPS = frozenset(
    "conv2d linear matmul max_pool2d avg_pool2d layer_norm rms_norm softmax "
    "add sub mul div maximum minimum affine clamp neg abs exp sqrt "
    "relu hardswish hardsigmoid sigmoid tanh gelu "
    "reduce_mean reduce_sum reduce_max reduce_min "
    "reshape transpose slice concat take pad expand".split()
)
_LOWERED = frozenset("silu gelu_tanh attention_full attention_qkv".split())
MODULE_OPS = PLAIN_OPS | _LOWERED
LAYERS = frozenset({"conv2d", "linear"})
# Where a layer's sums are cut off, their codes end too: no op of its own.
CUT_OFF = frozenset({"none", "relu", "relu6"})
MOST_DIMENSIONS = 5


def supports_in_module(node: Node) -> str | None:
    """None if the NPU runs this node of a module, or the reason why it does not."""
    if node.op not in MODULE_OPS:
        return f"the NPU backend has no op {node.op}"
    if any(v.dtype != DType.f32 for v in node.outputs):
        return "whole numbers"
    first, *rest = node.inputs
    if node.op == "take":
        return "which entries are taken must be known" if is_activation(_is(rest[0])) else None
    if any(v is not None and v.dtype != DType.f32 for v in node.inputs):
        return "whole numbers"
    if node.op in LAYERS and (first is None or is_activation(_is(rest[0]))):
        return "the weight of a layer must be known"
    if node.op in LAYERS and len(rest) > 1 and rest[1] is not None and is_activation(rest[1]):
        return "the bias of a layer must be known"
    if node.op == "pad" and attr_float(node.attrs, "value", 0.0) != 0:
        return "the NPU backend pads with zero only"
    odd = attr_int(node.attrs, "divisor", 0) or attr_int(node.attrs, "ceil_mode", 0)
    if node.op == "avg_pool2d" and odd:
        return "a mean over windows that reach over the edge, or with a divisor of its own"
    return None


def lower_module(graph: Graph, bits: int) -> Graph:
    """The same in plain ops, for activations of so many bits."""
    return _ModuleLowering(graph, bits).run()


class _ModuleLowering:
    def __init__(self, graph: Graph, bits: int) -> None:
        self.graph, self.bits = graph, bits
        self.b = GraphBuilder(graph.name)
        self.known: dict[int, Value] = {}
        self.unshaped: dict[int, Value] = {}  # what a reshape's result was before

    def run(self) -> Graph:
        for value in self.graph.values():
            if any(isinstance(d, Sym) for d in value.shape):
                raise GraphError(
                    f"{value.name} has a size that is known only when it runs",
                    "An NPU has fixed shapes: export without dynamic_shapes.",
                )
        for value in self.graph.inputs:
            self.known[id(value)] = self.b.input(value.name, value.shape, value.dtype)
        for node in self.graph.nodes:
            self.known[id(node.outputs[0])] = self._place(node)
        for value in self.graph.outputs:
            self.b.output(self._own(value), value.name)
        lowered = self.b.finish()
        remove_dead_nodes(lowered)
        for value in lowered.values():
            if len(value.shape) > MOST_DIMENSIONS:
                raise GraphError(
                    f"{value!r} has more dimensions than the NPU takes, {MOST_DIMENSIONS}",
                    "Reshape it to fewer in the module.",
                )
        return lowered

    def _own(self, value: Value) -> Value:
        """An output must be made by a node, and under its own name."""
        made = self._input(value)
        taken = [*self.b.graph.inputs, *self.b.graph.outputs]
        if made in taken:
            made = self.b.node("reshape", made, shape=largest(made.shape))
        return made

    def _input(self, value: Value) -> Value:
        if id(value) not in self.known:
            assert not is_activation(value)
            self.known[id(value)] = value
        return self.known[id(value)]

    def _place(self, node: Node) -> Value:
        inputs = [self._input(v) for v in node.inputs if v is not None]
        attrs = dict(node.attrs)
        lowering: Callable[[list[Value], Mapping[str, Attribute]], Value] | None
        lowering = getattr(self, f"_{node.op}", None)
        reason = supports_in_module(node)
        if reason is not None:
            raise GraphError(f"{self.graph.name}: {reason}", "Export this module for cpu.")
        return lowering(inputs, attrs) if lowering else self.b.node(node.op, *inputs, **attrs)

    # --- layers ---

    def _conv2d(self, inputs: list[Value], attrs: Mapping[str, Attribute]) -> Value:
        return self._layer("conv2d", inputs, attrs)

    def _linear(self, inputs: list[Value], attrs: Mapping[str, Attribute]) -> Value:
        return self._layer("linear", inputs, {k: v for k, v in attrs.items() if k == "activation"})

    def _layer(self, op: str, inputs: list[Value], attrs: Mapping[str, Attribute]) -> Value:
        activation = attr_str(attrs, "activation", "none")
        if activation in CUT_OFF:
            return self.b.node(op, *inputs, **attrs)
        rest = {k: v for k, v in attrs.items() if k != "activation"}
        out = self.b.node(op, *inputs, **rest)
        spelled: Callable[..., Value] | None = getattr(self, f"_{activation}", None)
        return spelled([out], {}) if spelled else self.b.node(activation, out)

    def _layer_norm(self, inputs: list[Value], attrs: Mapping[str, Attribute]) -> Value:
        if len(inputs) == 3 or self.bits == 8:
            return self.b.node("layer_norm", *inputs, **attrs)
        # Without a shift, the chip would round the gain to 8 bits: it is multiplied afterwards.
        width = largest(inputs[0].shape)[-1]
        ones = self.b.constant("ones", np.ones(width, np.float32))
        return self.b.node("mul", self.b.node("layer_norm", inputs[0], ones, **attrs), inputs[1])

    def _attention_qkv(self, inputs: list[Value], attrs: Mapping[str, Attribute]) -> Value:
        qkv, *bias = inputs
        batch, tokens, _, heads, dim = largest(qkv.shape)
        shape = (batch, tokens, heads, dim)
        parts = [
            self.b.reshape(self.b.slice(qkv, axis=2, start=i, stop=i + 1), shape=shape)
            for i in range(3)
        ]
        return self._attention_full([*parts, *bias], attrs)

    def _attention_full(self, inputs: list[Value], attrs: Mapping[str, Attribute]) -> Value:
        b, (q, k, v, *bias) = self.b, inputs
        q = b.transpose(affine(b, q, attr_float(attrs, "scale"), 0.0), perm=(0, 2, 1, 3))
        scores = b.matmul(q, b.transpose(k, perm=(0, 2, 3, 1)))
        if bias:
            batch, *rest = largest(scores.shape)
            windows = largest(bias[0].shape)[0]  # window n of every image has the bias n
            scores = b.reshape(scores, shape=(batch // windows, windows, *rest))
            scores = b.reshape(b.add(scores, bias[0]), shape=(batch, *rest))
        mixed = b.matmul(b.softmax(scores, axis=-1), b.transpose(v, perm=(0, 2, 1, 3)))
        return b.node("transpose", mixed, perm=(0, 2, 1, 3))

    # --- functions ---

    def _affine(self, inputs: list[Value], attrs: Mapping[str, Attribute]) -> Value:
        scale, shift = attr_float(attrs, "scale", 1.0), attr_float(attrs, "shift", 0.0)
        return affine(self.b, inputs[0], scale, shift)

    def _silu(self, inputs: list[Value], _: Mapping[str, Attribute]) -> Value:
        return silu(self.b, inputs[0])

    def _gelu_tanh(self, inputs: list[Value], _: Mapping[str, Attribute]) -> Value:
        """In 8 bits the chip's own gelu is nearer: both differ by less than a step."""
        return self.b.node("gelu", inputs[0]) if self.bits == 8 else gelu_by_tanh(self.b, inputs[0])

    # --- moves ---

    def _reshape(self, inputs: list[Value], attrs: Mapping[str, Attribute]) -> Value:
        (x,) = inputs
        shape = tuple(
            largest(x.shape)[i] if d == 0 else d for i, d in enumerate(attr_ints(attrs, "shape"))
        )
        source = self.unshaped.get(id(x), x)
        if source.shape == shape:
            return source
        made: Value = self.b.node("reshape", source, shape=shape)
        self.unshaped[id(made)] = source
        return made

    def _transpose(self, inputs: list[Value], attrs: Mapping[str, Attribute]) -> Value:
        """With as few dimensions as it can be said in: the chip takes five."""
        (x,), perm = inputs, attr_ints(attrs, "perm")
        if len(perm) <= MOST_DIMENSIONS:
            return self.b.node("transpose", x, perm=perm)
        shape = largest(x.shape)
        groups = _moved_together([axis for axis in perm if shape[axis] != 1])
        order = sorted(groups)
        joined = self._reshape([x], {"shape": tuple(prod(shape[a] for a in g) for g in order)})
        turned = self.b.node("transpose", joined, perm=tuple(order.index(g) for g in groups))
        result = tuple(shape[axis] for axis in perm)
        return self._reshape([turned], {"shape": result})


def _moved_together(perm: list[int]) -> list[tuple[int, ...]]:
    """Axes that stay neighbours, each run of them as one.

    >>> _moved_together([0, 2, 3, 1])
    [(0,), (2, 3), (1,)]
    """
    groups: list[tuple[int, ...]] = []
    for axis in perm:
        if groups and groups[-1][-1] == axis - 1:
            groups[-1] = (*groups[-1], axis)
        else:
            groups.append((axis,))
    return groups


def _is(value: Value | None) -> Value:
    assert value is not None
    return value
