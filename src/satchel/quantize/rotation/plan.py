"""Which weights a rotation changes, read off the graph.

The hidden states that layers add to may be in any basis: what reads them rotates back, what writes
them rotates. A norm in between only needs its gain moved into the weights that follow it. The same
holds of a head's values between the attention's v and its output layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from satchel.errors import RecipeError
from satchel.graph.ir import Graph, Node, RowSource, TensorType, Value, Weight, attr_float

HEAD_SUFFIX = "#head"


@dataclass
class TensorRotation:
    """What becomes of a checkpoint's tensor ``[rows, columns]`` or ``[rows]``."""

    hidden_columns: bool = False  # it reads the hidden states
    gain: RowSource | None = None  # of the norm before it
    hidden_rows: bool = False  # it writes to them
    head_columns: int = 0  # the head size, where it reads the heads' values
    block_columns: int = 0  # where its input is rotated in blocks when the model runs
    head_rows: tuple[int, int, int] | None = None  # first, last and head size, where it writes them
    fixed: float | None = None  # all of it becomes this number
    source: str | None = None  # the tensor that it is read from, if not that of its own name


@dataclass
class RotationPlan:
    """By tensor, what is to be done."""

    hidden: int
    tensors: dict[str, TensorRotation] = field(default_factory=dict)

    def of(self, tensor: str) -> TensorRotation:
        return self.tensors.setdefault(tensor, TensorRotation())


def untie_head(graph: Graph) -> None:
    """Give the head of a tied model a weight and a tensor of its own, named after the table."""
    heads: dict[str, Value] = {}
    for node in graph.nodes:
        table = node.inputs[1] if node.op == "linear" else None
        if table is None or table.weight is None or table.weight.role != "embedding":
            continue
        name = table.weight.name + HEAD_SUFFIX
        source = replace(table.weight.source, tensor=table.weight.source.tensor + HEAD_SUFFIX)
        weight = Weight(name, table.weight.shape, "head", source)
        node.inputs[1] = heads.setdefault(
            name, Value(name, TensorType(weight.shape), weight=weight)
        )


def plan_rotation(graph: Graph) -> RotationPlan:
    """What to do with every tensor of a method whose head is its own weight."""
    return _Planner(graph).plan


class _Planner:
    def __init__(self, graph: Graph) -> None:
        self._makers = {id(v): node for node in graph.nodes for v in node.outputs}
        self._users: dict[int, list[Node]] = {}
        for node in graph.nodes:
            for value in node.inputs:
                if value is not None:
                    self._users.setdefault(id(value), []).append(node)
        self._hidden: set[int] = set()  # values that are hidden states
        self._normed: dict[int, RowSource] = {}  # values that a norm made of them
        table = next(n for n in graph.nodes if n.op == "embedding").inputs[1]
        assert table is not None and table.weight is not None
        self.plan = RotationPlan(table.weight.shape[1])
        for node in graph.nodes:
            self._visit(node)
        for node in graph.nodes:
            if node.op == "attention":
                self._rotate_heads(node)

    def _visit(self, node: Node) -> None:
        reads = [v for v in node.inputs if v is not None]
        hidden = [v for v in reads if id(v) in self._hidden]
        if node.op == "embedding":
            self.plan.of(_weight(node, 1).source.tensor).hidden_columns = True
            self._hidden.add(id(node.outputs[0]))
        elif node.op == "linear":
            self._visit_linear(node)
        elif not hidden:
            if any(id(v) in self._normed for v in reads):
                raise _cannot(node)
        elif node.op == "rms_norm":
            gain = _weight(node, 1)
            self._normed[id(node.outputs[0])] = gain.source
            self.plan.of(gain.source.tensor).fixed = 1.0 - gain.source.add
        elif node.op == "add":
            for value in reads:
                if id(value) not in self._hidden:
                    self._rotate_writer(value, node)
            self._hidden.add(id(node.outputs[0]))
        elif node.op == "take_rows" or (
            node.op == "affine" and not attr_float(node.attrs, "shift", 0.0)
        ):
            self._hidden.add(id(node.outputs[0]))
        else:
            raise _cannot(node)

    def _visit_linear(self, node: Node) -> None:
        x = node.inputs[0]
        gain = self._normed.get(id(x))
        if gain is not None or id(x) in self._hidden:
            weight = _weight(node, 1)
            what = self.plan.of(weight.source.tensor)
            what.hidden_columns, what.gain = True, gain
            if weight.name.endswith(HEAD_SUFFIX):
                what.source = weight.source.tensor.removesuffix(HEAD_SUFFIX)

    def _rotate_writer(self, value: Value, user: Node) -> None:
        """The linear layer, maybe times a number, whose result is added to the hidden states."""
        maker = self._makers.get(id(value))
        while maker and maker.op == "affine" and not attr_float(maker.attrs, "shift", 0.0):
            maker = self._makers.get(id(maker.inputs[0]))
        if maker is None or maker.op != "linear" or len(self._users[id(maker.outputs[0])]) != 1:
            raise _cannot(maker or user)
        for place in range(1, len(maker.inputs)):
            if maker.inputs[place] is not None:
                weight = _weight(maker, place)
                if weight.source.ranges:
                    raise _cannot(maker)
                self.plan.of(weight.source.tensor).hidden_rows = True

    def _rotate_heads(self, attention: Node) -> None:
        written = self._made_by(attention.inputs[2], "cache_write")
        maker = self._through_reshapes(written.inputs[1]) if written else None
        reader = self._only_reader(attention.outputs[0])
        if maker is None or maker.op != "linear" or reader is None or reader.op != "linear":
            raise _cannot(attention)
        size = attention.outputs[0].shape[-1]
        assert isinstance(size, int)
        self.plan.of(_weight(reader, 1).source.tensor).head_columns = size
        for place in range(1, len(maker.inputs)):
            if maker.inputs[place] is not None:
                source, rows = _weight(maker, place).source, _weight(maker, place).shape[0]
                ranges = source.ranges or ((0, rows),)
                if len(ranges) > 1 or source.interleaved:
                    raise _cannot(maker)
                self.plan.of(source.tensor).head_rows = (*ranges[0], size)

    def _made_by(self, value: Value | None, op: str) -> Node | None:
        maker = self._makers.get(id(value))
        return maker if maker and maker.op == op else None

    def _through_reshapes(self, value: Value | None) -> Node | None:
        maker = self._makers.get(id(value))
        while maker and maker.op == "reshape":
            maker = self._makers.get(id(maker.inputs[0]))
        return maker

    def _only_reader(self, value: Value) -> Node | None:
        users: Sequence[Node] = self._users.get(id(value), ())
        while len(users) == 1 and users[0].op == "reshape":
            users = self._users.get(id(users[0].outputs[0]), ())
        return users[0] if len(users) == 1 else None


def _weight(node: Node, place: int) -> Weight:
    value = node.inputs[place]
    if value is None or value.weight is None:
        raise _cannot(node)
    return value.weight


def _cannot(node: Node) -> RecipeError:
    return RecipeError(
        f"this model cannot be rotated: {node.op} ({node.outputs[0].name}) does not allow it",
        "Leave --rotate out; --calibrate works with every model.",
    )
