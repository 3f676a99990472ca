"""A language model's method ``forward``: XNNPACK runs what it can, kernels the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from satchel.backends.executorch import float_ops  # noqa: F401  (it registers)
from satchel.backends.executorch.method import Constants, MethodWriter
from satchel.backends.executorch.part import Part
from satchel.backends.executorch.steps import Steps
from satchel.backends.weight_rows import Bytes
from satchel.encodings.encoding import Encoding
from satchel.graph.ir import Dim, Graph, Node, Sym, TensorType, Value

FORWARD = "forward"
BETWEEN = frozenset(  # what kernels do
    {"embedding", "rope_table", "cache_write", "attention", "take_rows"}
)


def with_last_row(graph: Graph, all_logits: bool) -> Graph:
    """The same graph with logits of the last token of a call, or of all of them."""
    tokens = graph.inputs[0].shape[0]
    made: dict[int, Value] = {}

    def size(dim: Dim) -> Dim:
        wanted = isinstance(dim, Sym) and dim != tokens
        return (tokens if all_logits else 1) if wanted else dim

    def copied(value: Value | None) -> Value | None:
        if value is None or value.weight or value.constant is not None or value.state:
            return value
        if id(value) not in made:
            type = TensorType(tuple(map(size, value.shape)), value.dtype)
            made[id(value)] = Value(value.name, type)
        return made[id(value)]

    nodes = []
    for node in graph.nodes:
        if node.op == "take_rows" and all_logits:
            source = copied(node.inputs[0])
            assert source is not None
            made[id(node.outputs[0])] = source
            continue
        outputs = [copied(v) or v for v in node.outputs]
        nodes.append(Node(node.op, [copied(v) for v in node.inputs], outputs, node.attrs))
    inputs, outputs = ([copied(v) or v for v in vs] for vs in (graph.inputs, graph.outputs))
    return replace(graph, inputs=inputs, outputs=outputs, nodes=nodes)


class LanguageModelMethod:
    """Takes the nodes one by one; those of XNNPACK are gathered until a kernel needs them."""

    def __init__(
        self,
        graph: Graph,
        context: int,
        encodings: Mapping[str, Encoding],
        constants: Constants,
        named: dict[str, Bytes],
        all_logits: bool,
    ) -> None:
        self._graph = with_last_row(graph, all_logits)
        self._encodings, self._named = encodings, named
        self.method = MethodWriter(FORWARD, constants)
        tokens = self._graph.inputs[0].shape[0]
        self._steps = Steps(self.method, tokens, encodings, context)
        self._tensors: dict[int, int] = {}  # of the method, by value of the graph
        self._angles: dict[int, tuple[Value, Value]] = {}
        self._boxed = self._values_in_boxes() | (
            {id(v) for v in self._graph.outputs} if all_logits else set()
        )
        self._waiting: list[Node] = []

    def _values_in_boxes(self) -> set[int]:
        """Those that kernels of attention take and give have a dimension of 1 in front."""
        found = set()
        for node in self._graph.nodes:
            if node.op == "cache_write":
                found.add(id(node.inputs[1]))
            elif node.op == "attention":
                found |= {id(node.inputs[0]), id(node.outputs[0])}
        return found

    def write(self) -> MethodWriter:
        for node in self._graph.nodes:
            if node.op in BETWEEN:
                self._run_kernels(node)
            else:
                self._waiting.append(node)
        self._run_part()
        self.method.outputs = [self._tensors[id(v)] for v in self._graph.outputs]
        return self.method

    def _run_kernels(self, node: Node) -> None:
        steps, out = self._steps, node.outputs[0]
        if node.op == "embedding":
            self._tensors[id(out)] = steps.embed(node)
        elif node.op == "rope_table":
            self._turn(node)
        elif node.op == "cache_write":
            steps.write(node, self._tensor(node, 1))
        elif node.op == "attention":
            self._tensors[id(out)] = steps.attend(node, self._tensor(node, 0))
        else:
            self._tensors[id(out)] = steps.last_row(self._tensor(node, 0), out)

    def _turn(self, node: Node) -> None:
        """Angles as two values of their own."""
        tokens, width = node.outputs[0].shape
        assert isinstance(width, int)
        both = []
        for name, tensor in zip(("cos", "sin"), self._steps.angles(node), strict=True):
            value = Value(f"{node.outputs[0].name}.{name}", TensorType((tokens, 1, width // 2)))
            self._tensors[id(value)] = tensor
            both.append(value)
        self._angles[id(node.outputs[0])] = both[0], both[1]

    def _tensor(self, node: Node, place: int) -> int:
        """A value that a kernel needs now."""
        value = node.inputs[place]
        assert value is not None
        if id(value) not in self._tensors:
            self._run_part()
        return self._tensors[id(value)]

    def _run_part(self) -> None:
        """Let XNNPACK run what has been gathered."""
        if not self._waiting:
            return
        nodes, self._waiting = self._waiting, []
        part = Part(self._encodings, self._named, self._boxed, self._angles)
        for node in nodes:
            part.add(node)
        inside = {id(node) for node in nodes}
        others = [node for node in self._graph.nodes if id(node) not in inside]
        later = {id(v) for v in self._graph.outputs}
        later |= {id(v) for node in others for v in node.inputs}
        wanted = [v for node in nodes for v in node.outputs if id(v) in later]
        data, kept = part.finish(wanted)
        for value in kept:
            shape = (1, *value.shape) if id(value) in self._boxed else value.shape
            self._tensors[id(value)] = self.method.tensor(shape)
        given = [self._tensors[id(v)] for v in part.outside]
        self.method.delegate(data, [*given, *(self._tensors[id(v)] for v in kept)])
