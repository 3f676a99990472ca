"""One row of the op table: an op, what goes in, and what must come out according to torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.encodings.encoding import Encoding
from satchel.graph.builder import GraphBuilder
from satchel.graph.ir import Attribute, DType, Graph, Shape, Value
from satchel.graph.reference import ReferenceInterpreter
from support.programs import stored_values, write_program

Array = NDArray[Any]
Oracle = Callable[..., Any]  # (torch, *tensors) -> tensor; floats come as float64
Build = Callable[[GraphBuilder, list[Value | None]], Value]

FLOAT_TOLERANCE = 1e-5


@dataclass(frozen=True)
class Input:
    """Given anew at every call; its shape may be symbolic."""

    shape: Shape
    dtype: DType = DType.f32


@dataclass(frozen=True)
class Stored:
    """A weight in the file."""

    array: Array
    encoding: Encoding


@dataclass(frozen=True)
class Constant:
    array: Array


@dataclass(frozen=True)
class State:
    """Memory that the op writes; the oracle gets it as a tensor to write in place."""

    shape: tuple[int, ...]
    dtype: DType


Slot = Input | Stored | Constant | State | None


@dataclass(frozen=True)
class OpCase:
    """``calls`` has, for each call of the method, the arrays of the Input slots."""

    op: str
    name: str
    slots: tuple[Slot, ...]
    calls: tuple[tuple[Array, ...], ...]
    oracle: Oracle
    attrs: dict[str, Attribute] = field(default_factory=dict)
    tolerance: float = FLOAT_TOLERANCE
    build: Build | None = None  # for a case that needs more than the one node

    @property
    def id(self) -> str:
        return f"{self.op}-{self.name}"

    def graph(self) -> Graph:
        b = GraphBuilder("forward")
        values = [self._value(b, i, slot) for i, slot in enumerate(self.slots)]
        out = self.build(b, values) if self.build else b.node(self.op, *values, **self.attrs)
        if out.state:  # a method's output is memory of its own
            out = b.reshape(out, shape=tuple(int(d) for d in out.shape if isinstance(d, int)))
        b.output(out, "out")
        return b.finish()

    def _value(self, b: GraphBuilder, index: int, slot: Slot) -> Value | None:
        name = f"slot{index}"
        if isinstance(slot, Input):
            return b.input(name, slot.shape, slot.dtype)
        if isinstance(slot, Stored):
            role = "linear" if slot.encoding.is_matrix else "vector"
            dtype = DType.i8 if slot.encoding.kind == "matrix_i8" else DType.f32
            return b.weight(name, slot.array.shape, role, dtype=dtype)
        if isinstance(slot, Constant):
            return b.constant(name, slot.array)
        if isinstance(slot, State):
            return b.state(name, slot.shape, slot.dtype)
        return None

    def write(self, path: Path) -> Path:
        stored = {f"slot{i}": s for i, s in enumerate(self.slots) if isinstance(s, Stored)}
        return write_program(
            path,
            [self.graph()],
            {name: s.array for name, s in stored.items()},
            {name: s.encoding for name, s in stored.items()},
        )

    def run_reference(self) -> list[Array]:
        graph = self.graph()
        interpreter = ReferenceInterpreter(lambda weight: self._stored(weight.name))
        names = [value.name for value in graph.inputs]
        return [
            interpreter.run(graph, dict(zip(names, arrays, strict=True)))["out"]
            for arrays in self.calls
        ]

    def _stored(self, name: str) -> Array:
        slot = self.slots[int(name.removeprefix("slot"))]
        assert isinstance(slot, Stored)
        return stored_values(slot.array, slot.encoding)

    def run_oracle(self, torch: Any) -> list[Array]:
        states = {
            i: torch.zeros(s.shape, dtype=getattr(torch, s.dtype.value))
            for i, s in enumerate(self.slots)
            if isinstance(s, State)
        }
        results = []
        for arrays in self.calls:
            given = iter(arrays)
            tensors = []
            for i, slot in enumerate(self.slots):
                if isinstance(slot, Input):
                    tensors.append(_tensor(torch, next(given)))
                elif isinstance(slot, Stored):
                    tensors.append(_tensor(torch, stored_values(slot.array, slot.encoding)))
                elif isinstance(slot, Constant):
                    tensors.append(_tensor(torch, slot.array))
                elif isinstance(slot, State):
                    tensors.append(states[i])
            results.append(self.oracle(torch, *tensors).clone().numpy())
        return results


def _tensor(torch: Any, array: Array) -> Any:
    tensor = torch.from_numpy(np.array(array))
    return tensor.double() if array.dtype == np.float32 else tensor


def case(
    op: str,
    name: str,
    inputs: Sequence[Array | Slot],
    oracle: Oracle,
    *,
    tolerance: float = FLOAT_TOLERANCE,
    build: Build | None = None,
    calls: Sequence[Sequence[Array]] | None = None,
    **attrs: Attribute,
) -> OpCase:
    """A row. Inputs are either arrays, for one call, or slots with their arrays in ``calls``."""
    slots = tuple(
        Input(x.shape, DType(x.dtype.name)) if isinstance(x, np.ndarray) else x for x in inputs
    )
    if calls is None:
        calls = [[x for x in inputs if isinstance(x, np.ndarray)]]
    given = tuple(tuple(arrays) for arrays in calls)
    return OpCase(op, name, slots, given, oracle, dict(attrs), tolerance, build)
