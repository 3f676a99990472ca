"""What is known while the nodes of a graph are lowered one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from satchel.backends.qnn.ops import HOST_OPS, MOST_DIMENSIONS, is_activation, supports
from satchel.backends.qnn.row_parts import RowPart
from satchel.errors import GraphError
from satchel.graph.builder import GraphBuilder
from satchel.graph.ir import Attribute, DType, Graph, Node, Sym, TensorType, Value, largest
from satchel.graph.passes import remove_dead_nodes


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
    axis: int  # where the slots lie


@dataclass
class Lowered:
    """One method: ``npu`` is what the chip computes, ``before`` what the host gives it."""

    name: str
    npu: Graph
    before: Graph
    tokens: int = 0  # of a call; a module has none
    context: int = 0
    masks: list[MaskInput] = field(default_factory=list)
    caches: list[CacheInput] = field(default_factory=list)
    # The names under which each output of the method comes, where that is in parts.
    parts: dict[str, list[str]] = field(default_factory=dict)
    # What one method makes whole and others read: outputs here, or inputs of the same names.
    held: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Parted:
    """A layer that is computed in parts, some of its rows in each, and functions of its result."""

    inputs: list[Value]
    attrs: dict[str, Attribute]
    functions: tuple[tuple[str, dict[str, Attribute]], ...] = ()


class Lowering:
    """What is known while the nodes of a graph are taken one by one."""

    def __init__(
        self,
        graph: Graph,
        bits: int,
        tokens: int,
        context: int,
        fuse_bias: bool,
        row_parts: Mapping[str, int],
    ) -> None:
        self.graph, self.bits, self.fuse_bias = graph, bits, fuse_bias
        self.row_parts = row_parts  # by weight: into how many a layer is split
        self._parted: dict[int, Parted] = {}
        self.tokens, self.context = tokens, context
        self.b = GraphBuilder(graph.name)
        self.host = GraphBuilder(f"{graph.name}.before")
        self.result = Lowered(graph.name, self.b.graph, self.host.graph, tokens, context)
        self.known: dict[int, Value] = {}  # of the NPU's graph, by the original value
        self.on_host: dict[int, Value] = {}
        self.new: dict[str, Value] = {}  # what a cache is given, by its name
        self._unshaped: dict[int, Value] = {}  # what a reshape's result was before

    def run(self) -> Lowered:
        self._check_sizes()
        for value in self.graph.inputs:
            if value.dtype == DType.f32:
                self.known[id(value)] = self.b.input(value.name, value.shape)
        for node in self.graph.nodes:
            if node.op in HOST_OPS:
                self._place_on_host(node)
            elif not says_where(self.graph, node):
                self._place_on_npu(node)
        for value in self.graph.outputs:
            if id(value) in self._parted:
                self.result.parts[value.name] = self._in_parts(value)
            else:
                self.b.output(self._made(value), value.name)
        for cache in self.result.caches:
            self.b.output(self.new[cache.name], cache.new)
        for name in self.result.held:
            if name in self.new:
                self.b.output(self.new[name], name)
        npu = self.b.finish()
        remove_dead_nodes(npu)
        order = [value.name for value in self.graph.inputs]
        self.host.graph.inputs.sort(key=lambda value: order.index(value.name))
        self.host.finish()
        for value in npu.values():
            if len(value.shape) > MOST_DIMENSIONS:
                raise GraphError(
                    f"{value!r} has more dimensions than the NPU takes, {MOST_DIMENSIONS}",
                    "Reshape it to fewer in the module.",
                )
        return self.result

    def _check_sizes(self) -> None:
        if self.tokens:
            return
        for value in self.graph.values():
            if any(isinstance(d, Sym) for d in value.shape):
                raise GraphError(
                    f"{value.name} has a size that is known only when it runs",
                    "An NPU has fixed shapes: export without dynamic_shapes.",
                )

    def _made(self, value: Value) -> Value:
        """An output must be made by a node, and under its own name."""
        made = self.input(value)
        if made in [*self.b.graph.inputs, *self.b.graph.outputs]:
            made = self.b.node("reshape", made, shape=largest(made.shape))
        return made

    # --- the host ---

    def _place_on_host(self, node: Node) -> None:
        """Looking up and angles go to a graph of the host, in whatever size it is called."""
        out, first = node.outputs[0], given(node, 0)
        if node.op == "take_rows":
            self.known[id(out)] = self.input(first)
            return
        inputs = [self._host_input(v) for v in node.inputs if v is not None]
        made = self.host.node(node.op, *inputs, **node.attrs)
        self.on_host[id(out)] = made
        if node.op == "embedding":
            name = f"embedded.{sum(v.name.startswith('embedded.') for v in self.b.graph.inputs)}"
            self.host.output(made, name)
            self.known[id(out)] = self.b.input(name, (self.tokens, largest(made.shape)[1]))

    def _host_input(self, value: Value) -> Value:
        if value.weight is not None or value.constant is not None:
            return value
        if id(value) not in self.on_host:
            self.on_host[id(value)] = self.host.input(value.name, value.shape, value.dtype)
        return self.on_host[id(value)]

    # --- the NPU ---

    def input(self, value: Value) -> Value:
        """A value as the NPU's graph has it."""
        if id(value) not in self.known:
            if is_activation(value):
                raise GraphError(f"{self.graph.name}: the NPU cannot be given {value!r}")
            self.known[id(value)] = value
        return self.known[id(value)]

    def _place_on_npu(self, node: Node) -> None:
        reason = supports(node)
        if reason is not None:
            raise GraphError(f"{self.graph.name}: {reason}", "Export this model for cpu.")
        own = NODE_LOWERINGS.get(node.op)
        if own is not None:
            self.known[id(node.outputs[0])] = own(self, node)
            return
        if self._stays_parted(node):
            return
        inputs = [self.input(v) for v in node.inputs if v is not None]
        self.known[id(node.outputs[0])] = self.place(node.op, inputs, dict(node.attrs))

    def _stays_parted(self, node: Node) -> bool:
        """A layer that is to be split, and what works on each number of it, wait for the output:
        each part is computed to its end before the next, so that they can be cut apart."""
        first, out = given(node, 0), node.outputs[0]
        before = self._parted.get(id(first))
        if before is not None and node.op in _EACH:
            after = (*before.functions, (node.op, dict(node.attrs)))
            self._parted[id(out)] = replace(before, functions=after)
            return True
        weight = node.inputs[1].weight if node.op == "linear" and node.inputs[1] else None
        if weight is None or self.row_parts.get(weight.name, 1) < 2 or len(node.inputs) > 2:
            return False
        readers = [n for n in self.graph.nodes if any(v is out for v in n.inputs)]
        if any(n.op not in _EACH for n in readers):
            return False
        inputs = [self.input(v) for v in node.inputs if v is not None]
        self._parted[id(out)] = Parted(inputs, dict(node.attrs))
        return True

    def _in_parts(self, value: Value) -> list[str]:
        parted = self._parted[id(value)]
        x, matrix = parted.inputs
        assert matrix.weight is not None
        count, names = self.row_parts[matrix.weight.name], []
        for number in range(count):
            part = RowPart(matrix.weight.name, number, count)
            first, last = part.rows(matrix.weight.shape[0])
            shape = (last - first, matrix.weight.shape[1])
            weight = replace(matrix.weight, name=part.name, shape=shape)
            own = Value(part.name, TensorType(shape, matrix.dtype), weight=weight)
            made = self.place("linear", [x, own], parted.attrs)
            for function, attrs in parted.functions:
                made = self.place(function, [made], attrs)
            names.append(f"{value.name}.{number}")
            self.b.output(made, names[-1])
        return names

    def place(self, op: str, inputs: list[Value], attrs: dict[str, Attribute]) -> Value:
        """A node, or those that do the same."""
        lowering = LOWERINGS.get(op)
        return lowering(self, inputs, attrs) if lowering else self.b.node(op, *inputs, **attrs)

    def reshape(self, x: Value, shape: tuple[int, ...]) -> Value:
        """One for several in a row, and none where nothing changes."""
        source = self._unshaped.get(id(x), x)
        if source.shape == shape:
            return source
        made: Value = self.b.node("reshape", source, shape=shape)
        self._unshaped[id(made)] = source
        return made


def says_where(graph: Graph, node: Node) -> bool:
    """Whether a node only tells attention which slots to read: on the NPU a mask does that, or
    all slots are read."""
    made = node.outputs[0]
    readers = [n for n in graph.nodes if any(v is made for v in n.inputs)]
    return made.dtype == DType.i32 and all(n.op == "attention" for n in readers)


_EACH = frozenset({"affine", "tanh"})  # soft caps
Inputs = list[Value]
Attributes = dict[str, Attribute]
# An op's inputs, as the NPU has them, and its attributes; or the node itself, if it is more than
# a function of these.
LOWERINGS: dict[str, Callable[[Lowering, Inputs, Attributes], Value]] = {}
NODE_LOWERINGS: dict[str, Callable[[Lowering, Node], Value]] = {}


def given(node: Node, place: int) -> Value:
    value = node.inputs[place]
    assert value is not None
    return value
