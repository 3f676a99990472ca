"""Builds a graph node by node; types are inferred and checked as each node is added."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from satchel.errors import GraphError
from satchel.graph.ir import (
    STATE_WRITERS,
    Attribute,
    DType,
    Graph,
    Node,
    RowSource,
    Shape,
    TensorType,
    Value,
    Weight,
    constant_name,
)
from satchel.graph.ops import infer_types


class GraphBuilder:
    """Adds inputs, weights, states and nodes to one graph.

    >>> b = GraphBuilder("forward")
    >>> x = b.input("x", (2, 3))
    >>> b.output(b.add(x, x))
    >>> print(b.finish())
    method forward(%x: f32[2, 3])
      %add_0: f32[2, 3] = add(%x, %x)
      return %add_0
    """

    def __init__(self, name: str) -> None:
        self.graph = Graph(name)
        self._weights: dict[str, Value] = {}
        self._states: dict[str, Value] = {}
        self._constants: dict[tuple[object, ...], Value] = {}

    def input(self, name: str, shape: Shape, dtype: DType = DType.f32) -> Value:
        value = Value(name, _filled(TensorType(shape, dtype)))
        self.graph.inputs.append(value)
        return value

    def output(self, value: Value, name: str | None = None) -> None:
        if name:
            value.name = name
        self.graph.outputs.append(value)

    def weight(
        self,
        name: str,
        shape: tuple[int, ...],
        role: str = "linear",
        source: RowSource | None = None,
        dtype: DType = DType.f32,
    ) -> Value:
        """A weight, by default the checkpoint's tensor of that name. Asked twice, it is one."""
        if name in self._weights:
            value = self._weights[name]
            if value.shape != shape:
                raise GraphError(f"the weight {name} is used as {value.shape} and as {shape}")
            return value
        weight = Weight(name, shape, role, source or RowSource(name))
        value = self._weights[name] = Value(name, TensorType(shape, dtype), weight=weight)
        return value

    def constant(self, name: str, data: NDArray[Any]) -> Value:
        """A small array that is part of the graph. The same data asked for twice is one."""
        key = (data.dtype.name, data.shape, data.tobytes())
        if key not in self._constants:
            type = TensorType(data.shape, DType(data.dtype.name))
            unique = constant_name(name, data)
            self._constants[key] = Value(unique, type, constant=data.copy())
        return self._constants[key]

    def state(
        self, name: str, shape: Shape, dtype: DType, initial: NDArray[Any] | None = None
    ) -> Value:
        """Memory that outlives a call, zero at the start of a session or what ``initial`` says."""
        type = TensorType(shape, dtype)
        if name not in self._states:
            self.graph.states[name] = type
            self._states[name] = Value(name, type, state=name)
            if initial is not None and initial.any():
                self.graph.initial[name] = initial
        elif self._states[name].type != type:
            raise GraphError(f"the state {name} is used as {self._states[name].type} and as {type}")
        return self._states[name]

    def cache(self, name: str, shape: tuple[int, int, int], dtype: DType) -> Value:
        """A state [heads, context, row] that every sequence has for itself."""
        self.graph.caches.add(name)
        return self.state(name, shape, dtype)

    def node(self, op: str, *inputs: Value | None, **attrs: Attribute) -> Value:
        types = [v.type if v else None for v in inputs]
        (type,) = infer_types(op, types, attrs)
        value = Value(f"{op}_{len(self.graph.nodes)}", _filled(type))
        if op in STATE_WRITERS and inputs[0] is not None:
            value.state = inputs[0].state
        self.graph.nodes.append(Node(op, list(inputs), [value], dict(attrs)))
        return value

    def __getattr__(self, op: str) -> Any:
        """``builder.add(x, y)`` is ``builder.node("add", x, y)``."""
        from satchel.graph.ops import OPS

        if op not in OPS:
            raise AttributeError(f"GraphBuilder has no op {op!r}")
        return lambda *inputs, **attrs: self.node(op, *inputs, **attrs)

    def finish(self) -> Graph:
        self.graph.check()
        return self.graph


def _filled(type: TensorType) -> TensorType:
    """What is computed has numbers; only constants that go away again may have none."""
    if type.is_empty:
        raise GraphError(f"the shape {list(type.shape)} has a dimension below 1")
    return type
