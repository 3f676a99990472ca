"""Satchel's intermediate representation: values with a type, nodes from one op list.

A graph is a list of nodes in execution order. Weights are references into a checkpoint, not
data; states (KV caches, buffers) live as long as a session and are written by nodes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from satchel.errors import GraphError
from satchel.graph.ops import infer_types
from satchel.graph.types import (
    Attribute,
    Dim,
    DType,
    Shape,
    Sym,
    TensorType,
    attr_float,
    attr_int,
    attr_ints,
    attr_str,
    largest,
    same_elements,
)

__all__ = [
    "SIZE_DECIDERS",
    "STATE_WRITERS",
    "Attribute",
    "DType",
    "Dim",
    "Graph",
    "Node",
    "RowSource",
    "Shape",
    "Sym",
    "TensorType",
    "Value",
    "Weight",
    "attr_float",
    "attr_int",
    "attr_ints",
    "attr_str",
    "constant_name",
    "largest",
    "same_elements",
]

SIZE_DECIDERS = ("nonzero",)  # ops that find out the size of their result as they run
STATE_WRITERS = ("cache_write", "cache_move", "state_write")  # ops that write the state they read


@dataclass(frozen=True)
class RowSource:
    """Where a weight's rows come from: a checkpoint tensor, or some ranges of its rows."""

    tensor: str
    ranges: tuple[tuple[int, int], ...] | None = None  # None: all rows, in order
    add: float = 0.0  # Gemma's norms are stored as w and used as 1 + w
    # (head size, rotated rows) where the rotated rows of each head lie as pairs x0 y0 x1 y1 …;
    # they are brought to the order x0 x1 … y0 y1 …, the one that the op rope knows.
    interleaved: tuple[int, int] | None = None


@dataclass
class Weight:
    """A reference to a checkpoint tensor, with the role that decides how it is encoded."""

    name: str
    shape: tuple[int, ...]
    role: str  # "linear", "embedding", "head", "router", "vector"
    source: RowSource


class Value:
    """Something a node reads or writes. Identity matters: two values are never equal."""

    __slots__ = ("constant", "name", "state", "type", "weight")

    def __init__(
        self,
        name: str,
        type: TensorType,
        *,
        weight: Weight | None = None,
        constant: NDArray[Any] | None = None,
        state: str | None = None,
    ) -> None:
        self.name = name
        self.type = type
        self.weight = weight
        self.constant = constant
        self.state = state  # the state whose memory this value is

    @property
    def shape(self) -> Shape:
        return self.type.shape

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    def __repr__(self) -> str:
        return f"%{self.name}: {self.type}"


@dataclass(eq=False)
class Node:
    op: str
    inputs: list[Value | None]
    outputs: list[Value]
    attrs: dict[str, Attribute] = field(default_factory=dict)

    def __repr__(self) -> str:
        ins = ", ".join(f"%{v.name}" if v else "-" for v in self.inputs)
        attrs = "".join(f", {k}={v}" for k, v in self.attrs.items())
        return f"{', '.join(map(repr, self.outputs))} = {self.op}({ins}{attrs})"


@dataclass
class Graph:
    """One method: inputs, nodes in execution order, outputs."""

    name: str
    inputs: list[Value] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    states: dict[str, TensorType] = field(default_factory=dict)
    initial: dict[str, NDArray[Any]] = field(default_factory=dict)  # states that are not 0 at first
    # The states [heads, context, row] that every sequence has for itself.
    caches: set[str] = field(default_factory=set)
    # Computed sizes that no value needs to have, and that no call may leave below 1.
    bounds: list[Sym] = field(default_factory=list)

    def values(self) -> Iterator[Value]:
        """Every value once: inputs, then what nodes read or write, in order."""
        seen: set[int] = set()
        candidates: list[Value | None] = list(self.inputs)
        for node in self.nodes:
            candidates += node.inputs
            candidates += node.outputs
        for value in candidates:
            if value is not None and id(value) not in seen:
                seen.add(id(value))
                yield value

    def weights(self) -> list[Weight]:
        """Every weight once, in the order of first use."""
        return list({v.weight.name: v.weight for v in self.values() if v.weight}.values())

    def symbols(self) -> list[Sym]:
        """Every symbolic dimension, in the order of first use; computed ones behind the others."""
        dims = [d for v in self.values() for d in v.shape if isinstance(d, Sym)]
        return sorted(dict.fromkeys([*dims, *self.bounds]), key=lambda d: d.base != d.name)

    def check(self) -> None:
        """Raise GraphError unless every node obeys its op's rules and reads what exists."""
        self._check_names()
        for each in self.values():
            if each.type.is_empty:
                raise GraphError(f"{self.name}: {each!r} has a dimension below 1")
        made: set[int] = set()
        known = {id(v) for v in self.inputs}
        for node in self.nodes:
            for value in node.inputs:
                if value is None or value.weight or value.constant is not None or value.state:
                    continue
                if id(value) not in known:
                    raise GraphError(f"{self.name}: {node!r} reads {value!r} before it is made")
            types = [v.type if v else None for v in node.inputs]
            inferred = infer_types(node.op, types, node.attrs)
            declared = [v.type for v in node.outputs]
            if inferred != declared:
                raise GraphError(f"{self.name}: {node!r} should have the type {inferred}")
            if node.op in STATE_WRITERS:
                cache = node.inputs[0]
                if cache is None or not cache.state or node.outputs[0].state != cache.state:
                    raise GraphError(f"{self.name}: {node!r} must write to the state it reads")
            made.update(id(v) for v in node.outputs)
            known |= made
        for value in self.outputs:
            if id(value) not in made:
                raise GraphError(f"{self.name}: the output {value!r} is never made")
            if value.state:
                raise GraphError(
                    f"{self.name}: the output {value!r} is a state", "Return a copy of it."
                )

    def _check_names(self) -> None:
        for values in (self.inputs, self.outputs):
            names = [v.name for v in values]
            if len(set(names)) != len(names):
                raise GraphError(f"{self.name}: two inputs or outputs have one name: {names}")
        bounds: dict[str, int] = {}
        given = {d.name for v in self.inputs for d in v.shape if isinstance(d, Sym)}
        for node in self.nodes:
            if node.op in SIZE_DECIDERS:
                (size,) = node.outputs[0].shape
                if isinstance(size, Sym) and size.name in given:
                    raise GraphError(f"{self.name}: the size {size.name} is decided twice")
                given |= {size.name} if isinstance(size, Sym) else set()
        for sym in self.symbols():
            unknown = sym.bases - given if sym.base != sym.name else set()
            if unknown:
                raise GraphError(f"{self.name}: no input has the size {min(unknown)}")
            if bounds.setdefault(sym.name, sym.maximum) != sym.maximum:
                raise GraphError(f"{self.name}: the size {sym.name} has two maxima")

    def __str__(self) -> str:
        lines = [f"method {self.name}({', '.join(map(repr, self.inputs))})"]
        lines += [f"  {node!r}" for node in self.nodes]
        lines.append(f"  return {', '.join('%' + v.name for v in self.outputs)}")
        return "\n".join(lines)


def constant_name(name: str, data: NDArray[Any]) -> str:
    """A name that tells the content, so that in all methods of a program it means the same."""
    described = f"{data.dtype.name}{data.shape}".encode() + data.tobytes()
    return f"{name}.{hashlib.sha256(described).hexdigest()[:16]}"
