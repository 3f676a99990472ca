"""From a method's graph to the form that the NPU runs: static shapes, plain ops, no state.

The KV cache is an input, and only the keys and values of the new tokens are outputs: the host
writes them into its cache, and a mask hides the slots that hold nothing yet. What the NPU cannot
do well (looking up embeddings, sines of positions) stays on the host, in a graph of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from satchel.backends.qnn.spelled import affine, gelu_by_tanh, silu
from satchel.errors import GraphError
from satchel.graph.builder import GraphBuilder
from satchel.graph.ir import (
    Attribute,
    Graph,
    Node,
    Sym,
    Value,
    attr_float,
    attr_int,
    attr_ints,
    attr_str,
)

HOST_OPS = {
    "embedding": "a table of all tokens is looked up, not computed with",
    "positions": "whole numbers",
    "rope_table": "sines and cosines of large angles need 32 bits",
    "take_rows": "the NPU gives all rows, and the host takes those that are asked for",
    "cache_move": "the host keeps the cache",
}
# Ops that the NPU runs as they are; the others are lowered to these.
PLAIN_OPS = frozenset(
    "add sub mul affine linear matmul rms_norm layer_norm softmax sigmoid tanh gelu relu "
    "reshape transpose slice concat".split()
)
_LOWERED = frozenset("silu gelu_tanh silu_mul gelu_tanh_mul rope cache_write attention".split())
NPU_OPS = PLAIN_OPS | _LOWERED


@dataclass(frozen=True)
class MaskInput:
    """Which slots each query sees."""

    name: str
    window: int  # 0: all before


@dataclass(frozen=True)
class CacheInput:
    """A cache of keys ``[heads, size, context]`` or values ``[heads, context, size]``."""

    name: str
    new: str  # the output that holds the new tokens' part
    keys: bool

    @property
    def axis(self) -> int:
        """Where the slots lie."""
        return 2 if self.keys else 1


@dataclass
class Lowered:
    """One method: ``npu`` is what the chip computes, ``host`` what it needs to be given."""

    name: str
    tokens: int
    context: int
    npu: Graph
    host: Graph
    embeddings: dict[str, str] = field(default_factory=dict)  # input of npu: the weight's name
    masks: list[MaskInput] = field(default_factory=list)
    caches: list[CacheInput] = field(default_factory=list)
    host_nodes: list[Node] = field(default_factory=list)

    @property
    def takes_trees(self) -> bool:
        """Whether the tokens may stand behind any of those before them."""
        return any(value.name == "parents" for value in self.host.inputs)


def lower(graph: Graph, context: int, tokens: int) -> Lowered:
    """Lower a method for blocks of exactly ``tokens``."""
    return _Lowering(graph, context, tokens).run()


class _Lowering:
    def __init__(self, graph: Graph, context: int, tokens: int) -> None:
        self.graph = graph
        self.context, self.tokens = context, tokens
        self.b = GraphBuilder(graph.name)
        self.host = GraphBuilder(f"{graph.name}.host")
        self.result = Lowered(graph.name, tokens, context, self.b.graph, self.host.graph)
        self.known: dict[int, Value] = {}  # of the NPU's graph, by the original value
        self.on_host: dict[int, Value] = {}
        self.new: dict[str, Value] = {}  # what a state is given, by its name

    def run(self) -> Lowered:
        for value in self.graph.inputs:
            shape = tuple(self.tokens if isinstance(d, Sym) else d for d in value.shape)
            if value.name != "rows":
                self.on_host[id(value)] = self.host.input(value.name, shape, value.dtype)
        for node in self.graph.nodes:
            if node.op in HOST_OPS:
                self.result.host_nodes.append(node)
                self._place_on_host(node)
            else:
                self._place_on_npu(node)
        for value in self.graph.outputs:
            self.b.output(self.known[id(value)], value.name)
        for cache in self.result.caches:
            self.b.output(self.new[cache.name], cache.new)
        self.b.finish()
        return self.result

    def _place_on_host(self, node: Node) -> None:
        out, first = node.outputs[0], node.inputs[0]
        assert first is not None
        if node.op == "take_rows":
            self.known[id(out)] = self._input(first)
        elif node.op == "embedding":
            table = node.inputs[1]
            assert table is not None and table.weight is not None
            width = table.weight.shape[1]
            value = self.b.input(f"embedded.{len(self.result.embeddings)}", (self.tokens, width))
            self.result.embeddings[value.name] = table.weight.name
            self.known[id(out)] = value
        else:
            inputs = [self._host_input(v) for v in node.inputs if v is not None]
            self.on_host[id(out)] = self.host.node(node.op, *inputs, **node.attrs)

    def _host_input(self, value: Value) -> Value:
        if value.weight is not None:
            return self.host.weight(value.weight.name, value.weight.shape, "vector")
        if value.constant is not None:
            return value
        return self.on_host[id(value)]

    def _input(self, value: Value) -> Value:
        """A value as the NPU's graph has it."""
        if id(value) in self.known:
            return self.known[id(value)]
        if value.weight is not None:
            made = Value(value.name, value.type, weight=value.weight)
        elif value.constant is not None:
            made = value
        else:
            raise GraphError(f"{self.graph.name}: the NPU cannot be given {value!r}")
        self.known[id(value)] = made
        return made

    def _place_on_npu(self, node: Node) -> None:
        out = node.outputs[0]
        if node.op == "cache_write":
            self._write_cache(node)
            return
        if node.op in PLAIN_OPS:
            self.known[id(out)] = self._plain(node)
            return
        lowering: Callable[[Node], Value] | None = getattr(self, f"_{node.op}", None)
        if node.op not in NPU_OPS or lowering is None:
            raise GraphError(f"{self.graph.name}: the NPU has no op {node.op}")
        self.known[id(out)] = lowering(node)

    def _arguments(self, node: Node) -> list[Value]:
        return [self._input(v) for v in node.inputs if v is not None]

    def _plain(self, node: Node) -> Value:
        inputs, attrs = self._arguments(node), dict(node.attrs)
        if node.op == "layer_norm":
            return self._layer_norm(inputs, attrs)
        if node.op == "linear":  # without rounding row by row: all values have fixed ranges here
            if attr_str(attrs, "activation", "none") != "none":
                raise GraphError(f"{self.graph.name}: {node!r} should have no activation yet")
            out = self.b.node("linear", *inputs[:2])
            return self.b.node("add", out, inputs[2]) if len(inputs) > 2 else out
        if node.op == "affine":
            scale, shift = attr_float(attrs, "scale", 1.0), attr_float(attrs, "shift", 0.0)
            return affine(self.b, inputs[0], scale, shift)
        if node.op == "reshape":
            attrs["shape"] = _filled(inputs[0], attr_ints(attrs, "shape"))
        return self.b.node(node.op, *inputs, **attrs)

    def _layer_norm(self, inputs: list[Value], attrs: Mapping[str, Attribute]) -> Value:
        """The gain is multiplied afterwards: inside, the chip would round it to 8 bits."""
        ones = self.b.constant("ones", np.ones(_known(inputs[0].shape[-1]), np.float32))
        out = self.b.node("mul", self.b.node("layer_norm", inputs[0], ones, **attrs), inputs[1])
        return self.b.node("add", out, inputs[2]) if len(inputs) > 2 else out

    def _silu(self, node: Node) -> Value:
        return silu(self.b, self._arguments(node)[0])

    def _silu_mul(self, node: Node) -> Value:
        gate, up = self._arguments(node)
        return self.b.node("mul", silu(self.b, gate), up)

    def _gelu_tanh(self, node: Node) -> Value:
        return gelu_by_tanh(self.b, self._arguments(node)[0])

    def _gelu_tanh_mul(self, node: Node) -> Value:
        gate, up = self._arguments(node)
        return self.b.node("mul", gelu_by_tanh(self.b, gate), up)

    def _rope(self, node: Node) -> Value:
        """The first values of each head turned by cosine and sine, which the host gives."""
        b = self.b
        x = self._input(_given(node, 0))
        cos, sin = self._turns(_given(node, 1))
        half, dim = _known(cos.shape[2]), _known(x.shape[2])
        first = b.slice(x, axis=2, start=0, stop=half)
        second = b.slice(x, axis=2, start=half, stop=2 * half)
        turned = [
            b.sub(b.mul(first, cos), b.mul(second, sin)),
            b.add(b.mul(second, cos), b.mul(first, sin)),
        ]
        if 2 * half < dim:
            turned.append(b.slice(x, axis=2, start=2 * half, stop=dim))
        return b.node("concat", *turned, axis=2)

    def _turns(self, table: Value) -> tuple[Value, Value]:
        """A rotary table as two inputs of the NPU, each [tokens, 1, half]."""
        on_host = self.on_host[id(table)]
        width = _known(on_host.shape[1])
        made = []
        for part, start in (("cos", 0), ("sin", width // 2)):
            name = f"{on_host.name}.{part}"
            found = next((v for v in self.b.graph.inputs if v.name == name), None)
            if found is None:
                shape = (self.tokens, 1, width // 2)
                sliced = self.host.slice(on_host, axis=1, start=start, stop=start + width // 2)
                self.host.output(self.host.reshape(sliced, shape=shape), name)
                found = self.b.input(name, shape)
            made.append(found)
        return made[0], made[1]

    def _write_cache(self, node: Node) -> None:
        """The new part of a cache. Keys lie transposed, as their product with queries wants."""
        out, x = node.outputs[0], self._input(_given(node, 1))
        assert out.state is not None
        keys = out.state.endswith(".k")
        turned = self.b.transpose(x, perm=(1, 2, 0) if keys else (1, 0, 2))
        # A copy, which is where 16 bits become the cache's 8.
        self.new[out.state] = self.b.affine(turned, scale=1.0)
        heads, *_ = (_known(d) for d in turned.shape)
        dim = _known(turned.shape[1 if keys else 2])
        shape = (heads, dim, self.context) if keys else (heads, self.context, dim)
        self.known[id(out)] = self.b.input(out.state, shape)
        self.result.caches.append(CacheInput(out.state, f"{out.state}.new", keys))

    def _attention(self, node: Node) -> Value:
        """Keys and values have a dimension of 1 where queries have the heads that share them.

        With queries folded into rows instead, v69 computes wrong scores without a word.
        """
        b = self.b
        q = self._input(_given(node, 0))  # [tokens, heads, dim]
        keys, values = _given(node, 1), _given(node, 2)
        assert keys.state is not None and values.state is not None
        scale = attr_float(node.attrs, "scale")
        softcap = attr_float(node.attrs, "softcap", 0.0)
        _, heads, dim = (_known(d) for d in q.shape)
        kv_heads, slots = _known(self.known[id(keys)].shape[0]), self.context + self.tokens
        q = b.transpose(b.affine(q, scale=scale), perm=(1, 0, 2))
        q = b.reshape(q, shape=(kv_heads, heads // kv_heads, self.tokens, dim))
        k = b.concat(self.known[id(keys)], self.new[keys.state], axis=2)
        v = b.concat(self.known[id(values)], self.new[values.state], axis=1)
        scores = b.matmul(q, b.reshape(k, shape=(kv_heads, 1, dim, slots)))
        if softcap:
            scores = b.affine(b.tanh(b.affine(scores, scale=1 / softcap)), scale=softcap)
        scores = b.add(scores, self._mask(attr_int(node.attrs, "window", 0)))
        v = b.reshape(v, shape=(kv_heads, 1, slots, dim))
        out = b.reshape(b.matmul(b.softmax(scores, axis=-1), v), shape=(heads, self.tokens, dim))
        return b.node("transpose", out, perm=(1, 0, 2))

    def _mask(self, window: int) -> Value:
        mask = MaskInput(f"mask.{window}", window)
        if mask not in self.result.masks:
            self.result.masks.append(mask)
            self.b.input(mask.name, (self.tokens, self.context + self.tokens))
        return next(v for v in self.b.graph.inputs if v.name == mask.name)


def _given(node: Node, place: int) -> Value:
    value = node.inputs[place]
    assert value is not None
    return value


def _known(dim: int | Sym) -> int:
    assert isinstance(dim, int)
    return dim


def _filled(x: Value, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(_known(x.shape[i]) if d == 0 else d for i, d in enumerate(shape))
