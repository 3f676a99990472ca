"""Moves transposes towards the outputs until they meet their opposites and vanish.

Convolutions read channels-last images. Where they come from a channels-first program, each one
stands between two transposes; after this pass a vision model has at most one at each end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from satchel.graph.ir import Attribute, Graph, Node, Shape, TensorType, Value
from satchel.graph.ops import Trait, infer_types, ops_with

Perm = tuple[int, ...]

UNARY = ops_with(Trait.unary)
ELEMENTWISE = ops_with(Trait.elementwise)
REDUCTIONS = ops_with(Trait.reduction)
ONE_AXIS = ops_with(Trait.one_axis)


def inverse(perm: Sequence[int]) -> Perm:
    return tuple(int(i) for i in np.argsort(perm))


class _Sinker:
    """Rewrites one graph; new nodes go to ``nodes`` in order."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes: list[Node] = []
        self.transposed: dict[int, tuple[Value, Perm]] = {}  # value -> what it is a transpose of
        self.existing: dict[tuple[int, Perm], Value] = {}  # transposes of a value that exist
        self.names = 0

    def run(self) -> None:
        outputs = {id(v) for v in self.graph.outputs}
        for node in self.graph.nodes:
            result = node.outputs[0]
            if node.op == "transpose" and node.inputs[0] is not None:
                self._transpose(node, node.inputs[0], result)
                continue
            moved = None if id(result) in outputs else self._moved(node)
            if moved is None:
                self.nodes.append(node)
                continue
            value, perm = moved
            if not perm:
                continue
            self._record(result, value, perm)
            self.nodes.append(Node("transpose", [value], [result], {"perm": perm}))
        self.graph.nodes = self.nodes

    def _record(self, result: Value, source: Value, perm: Perm) -> None:
        self.transposed[id(result)] = (source, perm)

    def _transpose(self, node: Node, source: Value, result: Value) -> None:
        """Two transposes are one."""
        perm = _perm(node.attrs)
        if id(source) in self.transposed:
            source, first = self.transposed[id(source)]
            perm = tuple(first[p] for p in perm)
        self._record(result, source, perm)
        self.existing.setdefault((id(source), perm), result)
        self.nodes.append(Node("transpose", [source], [result], {"perm": perm}))

    def _node(self, like: Node, inputs: list[Value | None], attrs: dict[str, Attribute]) -> Value:
        (type,) = infer_types(like.op, [v.type if v else None for v in inputs], attrs)
        self.names += 1
        value = Value(f"{like.outputs[0].name}.{self.names}", type)
        self.nodes.append(Node(like.op, inputs, [value], attrs))
        return value

    def _moved(self, node: Node) -> tuple[Value, Perm] | None:
        """The node on the inputs of its transposes, and the transpose that belongs behind it."""
        sources = [self.transposed.get(id(v)) for v in node.inputs]
        perms = {perm for found in sources if found for perm in (found[1],)}
        if len(perms) != 1:
            return None
        perm = perms.pop()
        if all(source is None for source in sources):
            return None
        if node.op in UNARY and sources[0]:
            return self._node(node, [sources[0][0], *node.inputs[1:]], dict(node.attrs)), perm
        if node.op in ELEMENTWISE or node.op == "concat":
            return self._several(node, sources, perm)
        if sources[0] is None:
            return None
        rewrite = _REWRITES.get(node.op)
        if rewrite is None:
            return None
        found = rewrite(node, sources[0][0], perm)
        if found is None:
            return None
        attrs, behind = found
        return self._node(node, [sources[0][0], *node.inputs[1:]], attrs), behind

    def _several(
        self, node: Node, sources: list[tuple[Value, Perm] | None], perm: Perm
    ) -> tuple[Value, Perm] | None:
        """All inputs must be transposes alike, or something that can be transposed at no cost."""
        inputs: list[Value | None] = []
        rank = len(perm)
        for value, source in zip(node.inputs, sources, strict=True):
            if value is None:
                inputs.append(None)
            elif source is not None:
                inputs.append(source[0])
            elif (id(value), inverse(perm)) in self.existing:
                inputs.append(self.existing[id(value), inverse(perm)])
            elif value.constant is not None and node.op != "concat":
                inputs.append(_transposed_constant(value, perm))
            elif not value.shape and node.op != "concat":
                inputs.append(value)
            elif value.constant is not None and len(value.shape) == rank:
                inputs.append(_transposed_constant(value, perm))
            else:
                return None
        attrs = dict(node.attrs)
        if node.op == "concat":
            attrs["axis"] = perm[_int(attrs["axis"])]
        return self._node(node, inputs, attrs), perm


def _transposed_constant(value: Value, perm: Perm) -> Value:
    """A constant as it must be for what it is combined with to be transposed afterwards."""
    array = value.constant
    assert array is not None
    wide = array.reshape((1,) * (len(perm) - array.ndim) + array.shape)
    transposed = np.ascontiguousarray(wide.transpose(inverse(perm)))
    if array.ndim < 2 and array.size == 1:
        return value
    name = f"{value.name}@{''.join(map(str, perm))}"
    return Value(name, TensorType(transposed.shape, value.dtype), constant=transposed)


Rewrite = Callable[[Node, Value, Perm], "tuple[dict[str, Attribute], Perm] | None"]


def _one_axis(node: Node, _source: Value, perm: Perm) -> tuple[dict[str, Attribute], Perm] | None:
    attrs = dict(node.attrs)
    axis = _int(attrs.get("axis", -1))
    attrs["axis"] = perm[axis if axis >= 0 else axis + len(perm)]
    return attrs, perm


def _pad(node: Node, _source: Value, perm: Perm) -> tuple[dict[str, Attribute], Perm] | None:
    attrs = dict(node.attrs)
    for key in ("before", "after"):
        widths = attrs[key]
        assert isinstance(widths, tuple)
        attrs[key] = tuple(widths[i] for i in inverse(perm))
    return attrs, perm


def _reduction(node: Node, _source: Value, perm: Perm) -> tuple[dict[str, Attribute], Perm] | None:
    attrs = dict(node.attrs)
    axes = attrs["axes"]
    assert isinstance(axes, tuple)
    transposed = tuple(sorted(perm[a] for a in axes))
    attrs["axes"] = transposed
    if attrs.get("keepdims"):
        return attrs, perm
    kept = [p for i, p in enumerate(perm) if i not in axes]
    order = sorted(kept)
    return attrs, tuple(order.index(p) for p in kept)


def _argmax(node: Node, source: Value, perm: Perm) -> tuple[dict[str, Attribute], Perm] | None:
    axis = _int(node.attrs["axis"])
    single = Node("", [], [], {**node.attrs, "axes": (axis,)})
    found = _reduction(single, source, perm)
    assert found
    attrs, behind = found
    attrs.pop("axes")
    return {**attrs, "axis": perm[axis]}, behind


def _reshape(node: Node, source: Value, perm: Perm) -> tuple[dict[str, Attribute], Perm] | None:
    """A reshape that joins neighbours, where they are neighbours before the transpose too."""
    before, after = tuple(source.shape[p] for p in perm), node.outputs[0].shape
    groups = _joined(before, after)
    if groups is None:
        return None
    blocks = [[perm[i] for i in group] for group in groups]
    for block in blocks:
        if block != list(range(block[0], block[0] + len(block))):
            return None
    order = sorted(range(len(blocks)), key=lambda i: blocks[i][0])
    shape = []
    for place, number in enumerate(order):
        block = blocks[number]
        dim = after[number]
        if isinstance(dim, int):
            shape.append(dim)
        elif block == [place]:
            shape.append(0)
        else:
            return None
    return {"shape": tuple(shape)}, tuple(order.index(i) for i in range(len(blocks)))


def _joined(before: Shape, after: Shape) -> list[list[int]] | None:
    """Which dimensions of ``before`` each one of ``after`` is made of; None if it splits some."""
    groups: list[list[int]] = []
    at = 0
    for size in after:
        group = [at]
        if at >= len(before):
            return None
        total = before[at]
        at += 1
        while total != size and at < len(before):
            step = before[at]
            if not (isinstance(total, int) and isinstance(step, int)):
                return None
            total *= step
            group.append(at)
            at += 1
        if total != size:
            return None
        groups.append(group)
    while at < len(before) and before[at] == 1:
        groups[-1].append(at)
        at += 1
    return groups if at == len(before) and groups else None


_REWRITES: dict[str, Rewrite] = {
    **dict.fromkeys(ONE_AXIS - {"concat"}, _one_axis),
    **dict.fromkeys(REDUCTIONS, _reduction),
    "argmax": _argmax,
    "pad": _pad,
    "reshape": _reshape,
}


def _perm(attrs: dict[str, Attribute]) -> Perm:
    perm = attrs["perm"]
    assert isinstance(perm, tuple)
    return perm


def _int(value: Attribute) -> int:
    assert isinstance(value, int)
    return value


def sink_transposes(graph: Graph) -> None:
    """Move transposes down; those that meet their opposite are gone once dead nodes are removed."""
    _Sinker(graph).run()


def simplify_moves(graph: Graph) -> None:
    """A transpose that changes nothing in memory becomes a reshape; chains of reshapes one."""
    replaced: dict[int, Value] = {}
    reshaped: dict[int, Value] = {}  # result of a reshape -> what it is a reshape of
    outputs = {id(v) for v in graph.outputs}
    kept: list[Node] = []
    for node in graph.nodes:
        node.inputs = [replaced.get(id(v), v) for v in node.inputs]
        source, result = node.inputs[0] if node.inputs else None, node.outputs[0]
        if node.op == "transpose" and source is not None:
            _as_reshape(node, source, result)
        if node.op == "reshape" and source is not None:
            root = reshaped.get(id(source), source)
            if root is not source and _reshape_attribute(root, result) is not None:
                node.inputs[0] = source = root
                node.attrs = {"shape": _reshape_attribute(root, result) or ()}
            reshaped[id(result)] = source
        same = (
            node.op in ("reshape", "transpose")
            and source is not None
            and (source.type == result.type)
        )
        if same and node.op == "transpose":
            same = _perm(node.attrs) == tuple(range(len(result.shape)))
        if same and id(result) not in outputs and source is not None:
            replaced[id(result)] = source
        else:
            kept.append(node)
    graph.nodes = kept


def _as_reshape(node: Node, source: Value, result: Value) -> None:
    moving = [p for p in _perm(node.attrs) if source.shape[p] != 1]
    if moving == sorted(moving):
        shape = _reshape_attribute(source, result)
        if shape is not None:
            node.op, node.attrs = "reshape", {"shape": shape}


def _reshape_attribute(source: Value, result: Value) -> tuple[int, ...] | None:
    shape = []
    for i, d in enumerate(result.shape):
        if isinstance(d, int):
            shape.append(d)
        elif i < len(source.shape) and source.shape[i] == d:
            shape.append(0)
        else:
            return None
    return tuple(shape)
