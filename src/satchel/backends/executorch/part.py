"""Nodes of a graph that XNNPACK runs at one go, as one of its own graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from executorch.backends.xnnpack.serialization import xnnpack_graph_schema as schema
from numpy.typing import NDArray

from satchel.backends.executorch.xnnpack import NO_VALUE, Subgraph
from satchel.backends.weight_rows import (
    Bytes,
    byte_rows,
    float_rows,
    nibble_rows,
    plain_bytes,
    scale_rows,
    vector_bytes,
)
from satchel.encodings.encoding import Encoding
from satchel.graph.ir import Node, Value, Weight, largest

Kind = schema.XNNDatatype
Array = NDArray[Any]


@dataclass
class Part:
    """Values of the model's graph by what they are in XNNPACK's."""

    encodings: Mapping[str, Encoding]
    named: dict[str, Bytes]  # of the whole file
    boxed: set[int]  # values that have a dimension of 1 in front, outside
    angles: Mapping[int, tuple[Value, Value]]  # cosines and sines, by what was both
    graph: Subgraph = field(default_factory=Subgraph)
    outside: list[Value] = field(default_factory=list)  # what it is given
    known: dict[int, int] = field(default_factory=dict)
    known_names: dict[str, int] = field(default_factory=dict)  # constants
    quantized: dict[int, int] = field(default_factory=dict)  # rounded as they come

    def add(self, node: Node) -> None:
        """Append a node of the model's graph."""
        self.known[id(node.outputs[0])] = XNN_OPS[node.op](self, node)

    def input(self, node: Node, place: int) -> int:
        value = node.inputs[place]
        assert value is not None
        return self.number(value)

    def number(self, value: Value) -> int:
        """A value as this graph has it."""
        if id(value) not in self.known:
            self.known[id(value)] = self._brought(value)
        return self.known[id(value)]

    def _brought(self, value: Value) -> int:
        if value.constant is not None:
            return self.array(value.name, value.constant)
        if value.weight is not None:
            assert not self.encodings[value.weight.name].is_quantized
            return self.weight(value.weight.name, value.weight.shape)
        self.outside.append(value)
        shape = largest(value.shape)
        if id(value) not in self.boxed:
            return self.graph.give(shape)
        given = self.graph.give((1, *shape))
        return self.reshape(given, value)

    def finish(self, wanted: Sequence[Value]) -> tuple[bytes, list[Value]]:
        """The graph, and which of its values go outside."""
        kept = [value for value in wanted if id(value) in self.known]
        kept = [value for value in kept if value not in self.outside]
        for value in kept:
            number, boxed = self.known[id(value)], id(value) in self.boxed
            # What goes outside is memory of its own: not what came in, nor what has gone already.
            if boxed or number in (*self.graph.inputs, *self.graph.outputs):
                front = (1,) if boxed else ()
                new = self.graph.value((*front, *largest(value.shape)))
                sizes = [*front, *_sizes(value)]
                self.graph.node(schema.XNNStaticReshape(len(sizes), sizes, number, new, 0))
                number = new
            self.graph.keep(number)
        return self.graph.serialized(), kept

    # Constants.

    def array(self, name: str, array: Array) -> int:
        """Numbers that are known."""
        data = np.ascontiguousarray(array, np.float32)
        return self.stored(name, data.shape or (1,), plain_bytes(data))

    def number_of(self, number: float) -> int:
        return self.array(f"number.{np.float32(number).tobytes().hex()}", np.array([number]))

    def weight(self, name: str, shape: tuple[int, ...]) -> int:
        """A weight of 32-bit floats."""
        if self.encodings[name].is_matrix:
            rows, cols = shape
            return self.stored(name, shape, float_rows(name, (rows, cols)))
        count = int(np.prod(shape))
        return self.stored(name, shape, vector_bytes(name, count))

    @staticmethod
    def rows_of(weight: Weight) -> Bytes:
        """A matrix of 32-bit floats, row by row."""
        rows, cols = weight.shape
        return float_rows(weight.name, (rows, cols))

    def stored(self, key: str, shape: Sequence[int], data: Bytes) -> int:
        """A constant by its name."""
        if key not in self.known_names:
            self.named.setdefault(key, data)
            constant = self.graph.constant(key, data.size)
            self.known_names[key] = self.graph.value(shape, constant=constant)
        return self.known_names[key]

    def codes(self, name: str, shape: tuple[int, int]) -> int:
        """A matrix of codes with their scales."""
        if name in self.known_names:
            return self.known_names[name]
        encoding, (rows, cols) = self.encodings[name], shape
        four = encoding.kind == "matrix_q4"
        data = nibble_rows(name, shape) if four else byte_rows(name, shape)
        scales = scale_rows(name, shape, encoding.group, "bfloat16" if four else "float32")
        for key, part in ((name, data), (f"{name}#scales", scales)):
            self.named.setdefault(key, part)
        stored, scale = (
            self.graph.constant(key, part.size)
            for key, part in ((name, data), (f"{name}#scales", scales))
        )
        count = rows * cols // encoding.group
        told: dict[str, Any] = {"scale": [], "channel_dim": 0}
        told |= {"scale_buffer_idx": scale, "num_scales": count}
        if four:
            kind = Kind.xnn_datatype_qbint4
            quant = schema.PerChannelGroupQuant(group_size=encoding.group, **told)
        else:
            kind, quant = Kind.xnn_datatype_qcint8, schema.PerChannelQuant(**told)
        self.known_names[name] = self.graph.value(shape, kind, quant, stored)
        return self.known_names[name]

    # Nodes.

    def unary(self, kind: Any, x: int, shape: Sequence[int], *first: Any) -> int:
        """A node of one input; ``first`` are its own fields."""
        out = self.graph.like(x, shape)
        self.graph.node(kind(*first, x, out, 0))
        return out

    def binary(self, kind: Any, a: int, b: int, shape: Sequence[int]) -> int:
        out = self.graph.value(shape)
        self.graph.node(kind(a, b, out, 0))
        return out

    def reshape(self, x: int, value: Value) -> int:
        """x in the shape of a value, of whose sizes one may be known when it runs."""
        sizes = _sizes(value)
        out = self.graph.like(x, largest(value.shape))
        self.graph.node(schema.XNNStaticReshape(len(sizes), sizes, x, out, 0))
        return out

    def slice(self, x: int, shape: Sequence[int], axis: int, start: int, stop: int) -> int:
        """Some of an axis; a size of 0 takes all, however many there are."""
        offsets, sizes, kept = [0] * len(shape), [0] * len(shape), list(shape)
        offsets[axis], sizes[axis], kept[axis] = start, stop - start, stop - start
        out = self.graph.like(x, kept)
        self.graph.node(schema.XNNStaticSlice(len(shape), offsets, sizes, x, out, 0))
        return out

    def concat(self, parts: Sequence[int], axis: int, shape: Sequence[int]) -> int:
        out = self.graph.like(parts[0], shape)
        kinds = {2: schema.XNNConcatenate2, 3: schema.XNNConcatenate3}
        kinds |= {4: schema.XNNConcatenate4, 5: schema.XNNConcatenate5}
        numbers = [*parts, *[NO_VALUE] * (5 - len(parts))]
        first, last = numbers[:4], numbers[4]
        self.graph.node(kinds[len(parts)](axis, *first, out, 0, last))
        return out

    def as_codes(self, x: int, shape: Sequence[int], scale: float, zero: int) -> int:
        """Floats as codes of 8 bits. Ours are from 0 on, and XNNPACK's from -128."""
        out = self.coded(shape, scale, zero)
        self.graph.node(schema.XNNConvert(x, out, 0))
        return out

    def coded(self, shape: Sequence[int], scale: float, zero: int) -> int:
        """A value of such codes."""
        steps = schema.PerTensorQuant(scale, zero - 128)
        return self.graph.value(shape, Kind.xnn_datatype_qint8, steps)

    def as_floats(self, x: int, shape: Sequence[int]) -> int:
        out = self.graph.value(shape)
        self.graph.node(schema.XNNConvert(x, out, 0))
        return out

    def by_channel(
        self, key: str, shape: Sequence[int], data: Bytes, scales: Array, axis: int, kind: Any
    ) -> int:
        """Codes that are known, with a scale for each of one dimension's places."""
        parts = {key: data, f"{key}#scales": plain_bytes(scales.astype(np.float32))}
        for name, part in parts.items():
            self.named.setdefault(name, part)
        stored, scale = (self.graph.constant(name, part.size) for name, part in parts.items())
        told = {"scale_buffer_idx": scale, "num_scales": scales.size}
        quant = schema.PerChannelQuant(scale=[], channel_dim=axis, **told)
        return self.graph.value(shape, kind, quant, stored)

    def rounded(self, x: int, shape: Sequence[int]) -> int:
        """x rounded to 8 bits, each row by what it holds."""
        if x not in self.quantized:
            out = self.graph.value(
                shape, Kind.xnn_datatype_qdint8, schema.PerTokenDynamicQuant(num_nonbatch_dims=1)
            )
            self.graph.node(schema.XNNConvert(x, out, 0))
            self.quantized[x] = out
        return self.quantized[x]


def _sizes(value: Value) -> list[int]:
    """0 stands for the size that is known when it runs."""
    return [dim if isinstance(dim, int) else 0 for dim in value.shape]


# By op of the model's graph: appends what does the same and gives the number of its result.
XNN_OPS: dict[str, Callable[[Part, Node], int]] = {}
