"""Encodes graphs as the methods section: values with their storage, nodes in order."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from satchel.errors import GraphError
from satchel.graph.ir import Attribute, DType, Graph, Sym, TensorType, Value
from satchel.graph.memory_plan import MemoryPlan, plan_memory, shared_storage
from satchel.program.format import Encoder

DTYPE_CODES = {
    DType.f32: 0,
    DType.f16: 1,
    DType.i32: 2,
    DType.i64: 3,
    DType.i8: 4,
    DType.u8: 5,
    DType.boolean: 6,
}
STORED_IN_INPUT, STORED_IN_ARENA, STORED_IN_WEIGHT, STORED_IN_STATE = range(4)
STATE_OF_INSTANCE, STATE_OF_SEQUENCES = range(2)
ABSENT = 0xFFFFFFFF
INITIAL = "initial/"  # before the name of a state: the weight that it is at first


def collect_states(graphs: Sequence[Graph]) -> dict[str, TensorType]:
    """The states of all methods; methods that name the same state share it."""
    states: dict[str, TensorType] = {}
    for graph in graphs:
        for name, type in graph.states.items():
            if states.setdefault(name, type) != type:
                raise GraphError(f"the state {name} has two types: {states[name]} and {type}")
    return states


def collect_initial(graphs: Sequence[Graph]) -> list[Value]:
    """What states are at first, where that is not zero, as constants with the names of the file."""
    found: dict[str, Value] = {}
    for graph in graphs:
        for name, array in graph.initial.items():
            type = graph.states[name]
            same = found.setdefault(name, Value(INITIAL + name, type, constant=array))
            if same.constant is None or not np.array_equal(same.constant, array):
                raise GraphError(f"the state {name} has two initial values")
    return list(found.values())


def encode_methods(graphs: Sequence[Graph], weight_numbers: Mapping[str, int]) -> bytes:
    """``weight_numbers`` gives each weight's and constant's place in the weight index."""
    out = Encoder()
    states = collect_states(graphs)
    out.u32(len(states))
    caches = set[str]().union(*(graph.caches for graph in graphs))
    for name, type in states.items():
        out.text(name)
        _encode_type(out, type, {})
        out.u8(STATE_OF_SEQUENCES if name in caches else STATE_OF_INSTANCE)
    numbers = {name: i for i, name in enumerate(states)}
    out.u32(len(graphs))
    for graph in graphs:
        graph.check()  # the loader checks the same rules
        _encode_method(out, graph, plan_memory(graph), weight_numbers, numbers)
    return out.finish()


def _encode_method(
    out: Encoder,
    graph: Graph,
    plan: MemoryPlan,
    weight_numbers: Mapping[str, int],
    state_numbers: Mapping[str, int],
) -> None:
    shared = shared_storage(graph)
    values = list(graph.values())
    ids = {id(v): i for i, v in enumerate(values)}
    inputs = {id(v): i for i, v in enumerate(graph.inputs)}
    symbols = {sym.name: i for i, sym in enumerate(graph.symbols())}

    def location(value: Value) -> tuple[int, int]:
        if id(value) in inputs:
            return STORED_IN_INPUT, inputs[id(value)]
        if value.weight or value.constant is not None:
            return STORED_IN_WEIGHT, weight_numbers[value.name]
        if value.state:
            return STORED_IN_STATE, state_numbers[value.state]
        return STORED_IN_ARENA, plan.offsets[id(value)]

    out.text(graph.name)
    out.u64(plan.size)
    out.u32(len(symbols))
    for sym in graph.symbols():
        out.text(sym.name)
        out.i64(sym.maximum)
    out.u32(len(values))
    for value in values:
        storage, place = location(value)
        out.text(value.name)
        out.u8(storage)
        out.u64(place)
        _encode_type(out, value.type, symbols)
    for group in (graph.inputs, graph.outputs):
        out.u32(len(group))
        for value in group:
            out.u32(ids[id(value)])
    # A reshape that shares its input's memory has nothing to do.
    nodes = [n for n in graph.nodes if not (n.op == "reshape" and id(n.outputs[0]) in shared)]
    out.u32(len(nodes))
    for node in nodes:
        out.text(node.op)
        out.u8(len(node.inputs))
        for used in node.inputs:
            out.u32(ABSENT if used is None else ids[id(used)])
        out.u8(len(node.outputs))
        for made in node.outputs:
            out.u32(ids[id(made)])
        out.u8(len(node.attrs))
        for name, attribute in node.attrs.items():
            out.text(name)
            _encode_attribute(out, attribute)


def _encode_type(out: Encoder, type: TensorType, symbols: Mapping[str, int]) -> None:
    """A symbolic dimension is written as -1 - its number."""
    out.u8(DTYPE_CODES[type.dtype])
    out.u8(len(type.shape))
    for dim in type.shape:
        out.i64(-1 - symbols[dim.name] if isinstance(dim, Sym) else dim)


def _encode_attribute(out: Encoder, value: Attribute) -> None:
    if isinstance(value, int):
        out.u8(0)
        out.i64(value)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise GraphError(f"an attribute is {value}", "Attributes are finite numbers.")
        out.u8(1)
        out.f64(value)
    elif isinstance(value, str):
        out.u8(2)
        out.text(value)
    else:
        out.u8(3)
        out.u32(len(value))
        for item in value:
            out.i64(item)
