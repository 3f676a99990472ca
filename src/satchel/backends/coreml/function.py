"""One function of an ML program, from a method's graph: fixed sizes, 16-bit floats.

Hidden values are [1, tokens, channels], or for the Neural Engine [1, channels, 1, tokens], where a
layer is a convolution of one pixel; heads are [1, heads, tokens, size] in both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import coremltools as ct
import numpy as np
from coremltools.converters.mil import Builder as Mil
from coremltools.converters.mil.mil import Function, types

from satchel.backends.coreml.constants import Constants
from satchel.graph.ir import Graph, Node, Value, attr_float, attr_int, attr_str, largest

FAR = 30000.0  # taken off the scores of what a token does not see; 16 bits hold it
_LEAST = 2.0**-10  # of a row's largest number, by which it is divided before it is squared


@dataclass(frozen=True)
class Form:
    """What the functions of a package have in common."""

    context: int
    opset: Any
    stateful: bool  # caches are states of the model; else they are inputs, and new rows outputs
    channels_first: bool
    most_rows: int = 0  # of a layer: the last one is computed in parts; 0: any


class FunctionWriter:
    """Takes the nodes one by one."""

    def __init__(self, graph: Graph, form: Form, constants: Constants) -> None:
        self._graph, self._form, self._constants = graph, form, constants
        self.tokens = largest(graph.inputs[0].shape)[0]
        self._known: dict[int, Any] = {}
        self._angles: dict[int, tuple[Any, Any]] = {}
        self._caches: dict[str, Any] = {}
        self._new: dict[str, Any] = {}
        self._masks: dict[int, Any] = {}

    def write(self) -> Function:
        form, wanted = self._form, {"tokens": (1, self.tokens), "position": (1,)}
        if self.tokens > 1:
            wanted["last"] = (1,)
        inputs = {n: Mil.placeholder(shape, dtype=types.int32) for n, shape in wanted.items()}
        make = Mil.state_tensor_placeholder if form.stateful else Mil.placeholder
        for name, shape in cache_shapes(self._graph, form.context).items():
            inputs[cache_name(name)] = make(shape, dtype=types.fp16)
        with Function(inputs, opset_version=form.opset) as function:
            self._inputs = function.inputs
            self._positions = Mil.add(x=self._inputs["position"], y=self._whole(self.tokens))
            for node in self._graph.nodes:
                self._known[id(node.outputs[0])] = _NODES[node.op](self, node)
            made = [self._output(value) for value in self._graph.outputs]
            made += [Mil.identity(x=x, name=f"{name}_new") for name, x in self._new.items()]
            function.set_outputs(made)
        return function

    def _output(self, value: Value) -> Any:
        """Logits as [1, vocabulary], whatever the layout."""
        x, width = self._known[id(value)], largest(value.shape)[-1]
        return Mil.reshape(x=x, shape=(1, width), name=value.name)

    # What nodes are made of.

    def input(self, node: Node, place: int = 0) -> Any:
        value = node.inputs[place]
        assert value is not None
        return self._known[id(value)]

    def _is_heads(self, value: Value | None) -> bool:
        assert value is not None
        return len(value.shape) == 3

    def _axis(self, value: Value | None) -> int:
        """Where the numbers of a token lie."""
        return 3 if self._is_heads(value) else 1 if self._form.channels_first else 2

    def _vector(self, node: Node, place: int, axis: int) -> Any:
        """A weight or constant of one dimension, along an axis."""
        value = node.inputs[place]
        assert value is not None
        (count,) = largest(value.shape)
        shape = [1] * (4 if axis != 2 else 3)
        shape[axis] = count
        if value.constant is not None:
            return self._constants.array(
                value.name, value.constant.reshape(shape).astype(np.float16)
            )
        assert value.weight is not None
        return self._constants.vector(value.weight.name, tuple(shape))

    def embedding(self, node: Node) -> Any:
        table = node.inputs[1]
        assert table is not None and table.weight is not None
        rows, cols = table.weight.shape
        matrix = self._constants.matrix(table.weight.name, (rows, cols), table=True)
        found = Mil.gather(x=matrix, indices=self._inputs["tokens"], axis=0)
        if not self._form.channels_first:
            return found
        return Mil.expand_dims(x=Mil.transpose(x=found, perm=[0, 2, 1]), axes=[2])

    def linear(self, node: Node) -> Any:
        x, weight = self.input(node), node.inputs[1]
        assert weight is not None and weight.weight is not None
        name, (rows, cols) = weight.weight.name, weight.weight.shape
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        most, parts = self._form.most_rows or rows, []
        for first in range(0, rows, most):
            part = (first, min(first + most, rows)) if rows > most else None
            parts.append(self._layer(x, name, (rows, cols), part, bias))
        out = parts[0]
        if len(parts) > 1:
            out = Mil.concat(values=parts, axis=1 if self._form.channels_first else 2)
        activation = attr_str(node.attrs, "activation", "none")
        return out if activation == "none" else FUNCTIONS[activation](out)

    def _layer(
        self,
        x: Any,
        name: str,
        shape: tuple[int, int],
        part: tuple[int, int] | None,
        bias: Value | None,
    ) -> Any:
        assert bias is None or (bias.weight is not None and part is None)
        first, last = part or (0, shape[0])
        constants, more = self._constants, (1, 1) if self._form.channels_first else ()
        matrix = constants.matrix(name, shape, part=part, more=more)
        shift = (
            constants.vector(bias.weight.name, (last - first,))
            if bias is not None and bias.weight is not None
            else None
        )
        if self._form.channels_first:
            given = {} if shift is None else {"bias": shift}
            return Mil.conv(x=x, weight=matrix, **given)
        return Mil.linear(x=x, weight=matrix, bias=shift or constants.zeros(last - first))

    def rms_norm(self, node: Node) -> Any:
        x, axis = self.input(node), self._axis(node.inputs[0])
        unit = scaled_to_one(x, axis, attr_float(node.attrs, "eps"))
        return Mil.mul(x=unit, y=self._vector(node, 1, axis))

    def layer_norm(self, node: Node) -> Any:
        x, axis = self.input(node), self._axis(node.inputs[0])
        centred = Mil.sub(x=x, y=Mil.reduce_mean(x=x, axes=[axis], keep_dims=True))
        unit = scaled_to_one(centred, axis, attr_float(node.attrs, "eps"))
        out = Mil.mul(x=unit, y=self._vector(node, 1, axis))
        if len(node.inputs) > 2 and node.inputs[2] is not None:
            out = Mil.add(x=out, y=self._vector(node, 2, axis))
        return out

    def reshape(self, node: Node) -> Any:
        """Between hidden values and heads."""
        x, count = self.input(node), self.tokens
        before, after = (largest(v.shape) for v in (node.inputs[0], node.outputs[0]) if v)
        first = self._form.channels_first
        if len(after) == 3:
            _, heads, size = after
            if first:
                split = Mil.reshape(x=x, shape=(1, heads, size, -1))
                return Mil.transpose(x=split, perm=[0, 1, 3, 2])
            split = Mil.reshape(x=x, shape=(1, -1, heads, size))
            return Mil.transpose(x=split, perm=[0, 2, 1, 3])
        if len(before) == 3:
            width = after[1]
            if first:
                joined = Mil.transpose(x=x, perm=[0, 1, 3, 2])
                return Mil.reshape(x=joined, shape=(1, width, 1, count))
            return Mil.reshape(x=Mil.transpose(x=x, perm=[0, 2, 1, 3]), shape=(1, count, width))
        return x

    def rope_table(self, node: Node) -> None:
        frequencies = node.inputs[1]
        assert frequencies is not None and frequencies.constant is not None
        scale = attr_float(node.attrs, "scale", 1.0)
        places = np.arange(self._form.context, dtype=np.float32)[:, None]
        angles = (places * frequencies.constant[None]).astype(np.float64)
        both = []
        for name, function in (("cos", np.cos), ("sin", np.sin)):
            table = (function(angles) * scale).astype(np.float16)
            stored = self._constants.array(f"{frequencies.name}.{name}.{scale}", table)
            rows = Mil.gather(x=stored, indices=self._positions, axis=0)
            both.append(Mil.reshape(x=rows, shape=(1, 1, self.tokens, table.shape[1])))
        self._angles[id(node.outputs[0])] = both[0], both[1]

    def rope(self, node: Node) -> Any:
        x, (cos, sin) = self.input(node), self._angles[id(node.inputs[1])]
        heads, count, size = x.shape[1:]
        half = cos.shape[3]

        def part(start: int, stop: int) -> Any:
            begin, end = [0, 0, 0, start], [1, heads, count, stop]
            return Mil.slice_by_index(x=x, begin=begin, end=end)

        first, second = part(0, half), part(half, 2 * half)
        rotated = [
            Mil.sub(x=Mil.mul(x=first, y=cos), y=Mil.mul(x=second, y=sin)),
            Mil.add(x=Mil.mul(x=second, y=cos), y=Mil.mul(x=first, y=sin)),
        ]
        if 2 * half < size:
            rotated.append(part(2 * half, size))
        return Mil.concat(values=rotated, axis=3)

    def cache_write(self, node: Node) -> None:
        """Rows of keys or values to where their tokens stand."""
        state = node.outputs[0].state
        assert state is not None
        name, new = cache_name(state), self.input(node, 1)
        held = self._inputs[name]
        if not self._form.stateful:
            self._new[name] = new
            self._caches[state] = Mil.concat(values=[held, new], axis=2)
            return
        position = self._inputs["position"]
        behind = Mil.add(x=position, y=np.array([self.tokens], np.int32))
        none, ends = np.zeros(2, np.int32), []
        for place in (position, behind):
            ends.append(Mil.concat(values=[none, place, none[:1]], axis=0))
        whole = [True, True, False, True]
        updated = Mil.slice_update(
            x=Mil.read_state(input=held),
            update=new,
            begin=ends[0],
            end=ends[1],
            begin_mask=whole,
            end_mask=whole,
        )
        self._caches[state] = Mil.coreml_update_state(state=held, value=updated)

    def attention(self, node: Node) -> Any:
        q, (k, v) = self.input(node), [self._caches[str(c and c.state)] for c in node.inputs[1:3]]
        heads, count, size = q.shape[1:]
        kv, slots = k.shape[1], k.shape[2]
        share = heads // kv
        q = Mil.mul(x=q, y=np.float16(attr_float(node.attrs, "scale")))
        q = Mil.reshape(x=q, shape=(1, kv, share * count, size))
        scores = Mil.matmul(x=q, y=k, transpose_y=True)
        cap = attr_float(node.attrs, "softcap", 0.0)
        if cap:
            scores = Mil.mul(
                x=Mil.tanh(x=Mil.mul(x=scores, y=np.float16(1 / cap))), y=np.float16(cap)
            )
        scores = Mil.reshape(x=scores, shape=(1, heads, count, slots))
        scores = Mil.add(x=scores, y=self._mask(attr_int(node.attrs, "window", 0)))
        part = Mil.reshape(x=Mil.softmax(x=scores, axis=3), shape=(1, kv, share * count, slots))
        return Mil.reshape(x=Mil.matmul(x=part, y=v), shape=(1, heads, count, size))

    def _mask(self, window: int) -> Any:
        """[1, 1, tokens, slots]: 0 for what a token sees."""
        if window not in self._masks:
            rows = Mil.reshape(x=self._positions, shape=(1, 1, self.tokens, 1))
            slots = self._whole(self._form.context, (1, 1, 1))
            seen = self._seen(Mil.sub(x=rows, y=slots), window)
            if not self._form.stateful:  # slots of the cache, then the tokens themselves
                start = Mil.reshape(x=self._inputs["position"], shape=(1, 1, 1, 1))
                filled = Mil.less(x=slots, y=start)
                steps = Mil.add(x=start, y=self._whole(self.tokens, (1, 1, 1)))
                own = self._seen(Mil.sub(x=rows, y=steps), window)
                seen = Mil.concat(values=[Mil.logical_and(x=seen, y=filled), own], axis=3)
            hidden = Mil.sub(x=Mil.cast(x=seen, dtype="fp16"), y=np.float16(1))
            self._masks[window] = Mil.mul(x=hidden, y=np.float16(FAR))
        return self._masks[window]

    def _whole(self, count: int, before: tuple[int, ...] = ()) -> Any:
        """0, 1, 2, …"""
        numbers = np.arange(count, dtype=np.int32).reshape(*before, count)
        return self._constants.array(f"whole numbers.{numbers.shape}", numbers)

    @staticmethod
    def _seen(back: Any, window: int) -> Any:
        seen = Mil.greater_equal(x=back, y=np.int32(0))
        if window:
            seen = Mil.logical_and(x=seen, y=Mil.less(x=back, y=np.int32(window)))
        return seen

    def take_rows(self, node: Node) -> Any:
        axis = 3 if self._form.channels_first else 1
        return Mil.gather(x=self.input(node), indices=self._inputs["last"], axis=axis)

    def affine(self, node: Node) -> Any:
        x = self.input(node)
        scale, shift = attr_float(node.attrs, "scale", 1.0), attr_float(node.attrs, "shift", 0.0)
        x = Mil.mul(x=x, y=np.float16(scale)) if scale != 1 else x
        return Mil.add(x=x, y=np.float16(shift)) if shift else x

    def gated(self, node: Node) -> Any:
        return GATED[node.op](x=self.input(node), y=self.input(node, 1))

    def binary(self, node: Node) -> Any:
        return _BINARY[node.op](x=self.input(node), y=self.input(node, 1))

    def unary(self, node: Node) -> Any:
        return FUNCTIONS[node.op](self.input(node))


def scaled_to_one(x: Any, axis: int, eps: float) -> Any:
    """x over the root of its mean square. Divided by its largest number first, a row's squares are
    numbers that 16 bits hold."""
    largest_one = Mil.reduce_max(x=Mil.abs(x=x), axes=[axis], keep_dims=True)
    largest_one = Mil.maximum(x=largest_one, y=np.float16(_LEAST))
    small = Mil.real_div(x=x, y=largest_one)
    mean = Mil.reduce_mean(x=Mil.mul(x=small, y=small), axes=[axis], keep_dims=True)
    rest = Mil.real_div(x=np.float16(eps**0.5), y=largest_one)
    inverse = Mil.rsqrt(x=Mil.add(x=mean, y=Mil.mul(x=rest, y=rest)), epsilon=np.float16(6e-8))
    return Mil.mul(x=small, y=inverse)


def cache_name(state: str) -> str:
    """A name that Core ML takes.

    >>> cache_name("cache.12.k")
    'cache_12_k'
    """
    return state.replace(".", "_")


def cache_shapes(graph: Graph, context: int) -> dict[str, tuple[int, int, int, int]]:
    """The caches of a graph, [1, heads, context, size]."""
    found = {}
    for node in graph.nodes:
        state = node.outputs[0].state
        if node.op == "cache_write" and state and node.inputs[1] is not None:
            _, heads, size = largest(node.inputs[1].shape)
            found[state] = (1, heads, context, size)
    return found


def _hard_sigmoid(x: Any) -> Any:
    return Mil.sigmoid_hard(x=x, alpha=np.float16(1 / 6), beta=np.float16(0.5))


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "silu": lambda x: Mil.silu(x=x),
    "gelu_tanh": lambda x: Mil.gelu(x=x, mode="TANH_APPROXIMATION"),
    "gelu": lambda x: Mil.gelu(x=x, mode="EXACT"),
    "relu": lambda x: Mil.relu(x=x),
    "tanh": lambda x: Mil.tanh(x=x),
    "sigmoid": lambda x: Mil.sigmoid(x=x),
    "relu6": lambda x: Mil.relu6(x=x),
    "hardsigmoid": _hard_sigmoid,
    "hardswish": lambda x: Mil.mul(x=x, y=_hard_sigmoid(x)),
    "exp": lambda x: Mil.exp(x=x),
    "sqrt": lambda x: Mil.sqrt(x=x),
    "abs": lambda x: Mil.abs(x=x),
    "neg": lambda x: Mil.mul(x=x, y=np.float16(-1)),
}
GATED: dict[str, Callable[..., Any]] = {
    "silu_mul": lambda x, y: Mil.mul(x=Mil.silu(x=x), y=y),
    "gelu_tanh_mul": lambda x, y: Mil.mul(x=FUNCTIONS["gelu_tanh"](x), y=y),
}
_BINARY: dict[str, Callable[..., Any]] = {"add": Mil.add, "sub": Mil.sub, "mul": Mil.mul}
_NODES: dict[str, Callable[[FunctionWriter, Node], Any]] = {
    "embedding": FunctionWriter.embedding,
    "linear": FunctionWriter.linear,
    "rms_norm": FunctionWriter.rms_norm,
    "layer_norm": FunctionWriter.layer_norm,
    "reshape": FunctionWriter.reshape,
    "rope_table": FunctionWriter.rope_table,
    "rope": FunctionWriter.rope,
    "cache_write": FunctionWriter.cache_write,
    "attention": FunctionWriter.attention,
    "take_rows": FunctionWriter.take_rows,
    "affine": FunctionWriter.affine,
    **dict.fromkeys(GATED, FunctionWriter.gated),
    **dict.fromkeys(_BINARY, FunctionWriter.binary),
    **dict.fromkeys(FUNCTIONS, FunctionWriter.unary),
}
OPS = frozenset(_NODES)
IOS = {name: getattr(ct.target, name) for name in ("iOS16", "iOS17", "iOS18")}
