"""The graphs of a program file, read back from it.

So the quantise-dequantise run computes what the file says, whatever recipe made it, and needs no
checkpoint. The loader has validated the file before this reads it.
"""

from __future__ import annotations

import struct
from typing import Any

from satchel.errors import ProgramFormatError
from satchel.graph.ir import (
    Attribute,
    Dim,
    DType,
    Graph,
    Node,
    RowSource,
    Sym,
    TensorType,
    Value,
    Weight,
)
from satchel.program.methods import (
    ABSENT,
    DTYPE_CODES,
    STATE_OF_SEQUENCES,
    STORED_IN_ARENA,
    STORED_IN_INPUT,
    STORED_IN_STATE,
    STORED_IN_WEIGHT,
)
from satchel.runtime.program import Program

_DTYPES: dict[int, DType] = {code: dtype for dtype, code in DTYPE_CODES.items()}


def read_graphs(program: Program) -> dict[str, Graph]:
    """Every method of a program as a graph whose weights are the program's own.

    >>> sorted(read_graphs(Program("model.satchel")))
    ['kv_forward', 'lookahead_accept', 'lookahead_forward', 'prefill_forward']
    """
    reader = _Reader(program.section("methods"))
    states = [(reader.text(), reader.type([]), reader.u8()) for _ in range(reader.u32())]
    graphs = [_read_graph(reader, states, program.weights) for _ in range(reader.u32())]
    return {graph.name: graph for graph in graphs}


class _Reader:
    """Takes what ``satchel.program.format.Encoder`` appended."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def _take(self, form: str) -> Any:
        (value,) = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return value

    def u8(self) -> int:
        return int(self._take("<B"))

    def u32(self) -> int:
        return int(self._take("<I"))

    def u64(self) -> int:
        return int(self._take("<Q"))

    def i64(self) -> int:
        return int(self._take("<q"))

    def text(self) -> str:
        length = int(self._take("<H"))
        self._at += length
        return self._data[self._at - length : self._at].decode()

    def type(self, symbols: list[Sym]) -> TensorType:
        dtype = _DTYPES[self.u8()]
        sizes = [self.i64() for _ in range(self.u8())]
        shape: tuple[Dim, ...] = tuple(symbols[-1 - n] if n < 0 else n for n in sizes)
        return TensorType(shape, dtype)

    def attribute(self) -> Attribute:
        kind = self.u8()
        if kind == 0:
            return self.i64()
        if kind == 1:
            return float(self._take("<d"))
        if kind == 2:
            return self.text()
        return tuple(self.i64() for _ in range(self.u32()))


def _read_graph(
    reader: _Reader, states: list[tuple[str, TensorType, int]], weights: list[dict[str, Any]]
) -> Graph:
    types = {name: type for name, type, _ in states}
    caches = {name for name, _, kind in states if kind == STATE_OF_SEQUENCES}
    graph = Graph(reader.text(), states=types, caches=caches)
    reader.u64()  # the arena's size
    symbols = [Sym(reader.text(), reader.i64()) for _ in range(reader.u32())]
    values: list[Value] = []
    places: dict[int, int] = {}  # of the values in the arena
    known: set[int] = set()  # values that need no node to make them
    for _ in range(reader.u32()):
        name, storage, place = reader.text(), reader.u8(), reader.u64()
        type = reader.type(symbols)
        value = Value(name, type)
        if storage == STORED_IN_WEIGHT:
            shape = tuple(weights[place]["shape"])
            # Constants lie among the weights, and their numbers are read in the same way.
            value.weight = Weight(weights[place]["name"], shape, "stored", RowSource(name))
        elif storage == STORED_IN_STATE:
            value.state = states[place][0]
        elif storage == STORED_IN_ARENA:
            places[id(value)] = place
        if storage in (STORED_IN_INPUT, STORED_IN_WEIGHT, STORED_IN_STATE):
            known.add(id(value))
        values.append(value)
    graph.inputs = [values[reader.u32()] for _ in range(reader.u32())]
    graph.outputs = [values[reader.u32()] for _ in range(reader.u32())]
    latest: dict[int, Value] = {}  # what lies at a place of the arena
    for _ in range(reader.u32()):
        op = reader.text()
        numbers = [reader.u32() for _ in range(reader.u8())]
        inputs = [None if n == ABSENT else values[n] for n in numbers]
        outputs = [values[reader.u32()] for _ in range(reader.u8())]
        attrs = {reader.text(): reader.attribute() for _ in range(reader.u8())}
        for used in inputs:
            if used is not None and id(used) not in known:
                # A reshape that moves nothing has no node in the file.
                graph.nodes.append(_reshape(latest.get(places[id(used)]), used))
                known.add(id(used))
        graph.nodes.append(Node(op, inputs, outputs, attrs))
        for made in outputs:
            known.add(id(made))
            if id(made) in places:
                latest[places[id(made)]] = made
    graph.check()
    return graph


def _reshape(source: Value | None, result: Value) -> Node:
    if source is None:
        raise ProgramFormatError(f"nothing makes the value {result.name}", "", "methods")
    shape = tuple(0 if isinstance(dim, Sym) else dim for dim in result.shape)
    return Node("reshape", [source], [result], {"shape": shape})
