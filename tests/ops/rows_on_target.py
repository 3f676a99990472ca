"""Rows of the op table as one program for any target, placed, compiled and opened as exports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.backends import Target
from satchel.backends.target import Samples
from satchel.exporter.pipeline import Export, Portable
from satchel.graph.ir import Graph, RowSource, Value
from satchel.program.about import AboutModule
from satchel.quantize.recipe import Recipe
from satchel.runtime.program import Program
from satchel.torch.weights import ArrayCheckpoint
from support.op_case import Input, OpCase, State, Stored
from support.programs import stored_values

Array = NDArray[Any]
_FLOATS = ("f32", "f16", "matrix_f32", "matrix_f16")


@dataclass
class TargetRow:
    """One call of a row, in the shapes that it has."""

    case: OpCase
    arrays: tuple[Array, ...]

    def graph(self) -> Graph:
        return self.case.graph()

    def stored(self) -> dict[str, Stored]:
        slots = enumerate(self.case.slots)
        return {f"slot{i}": slot for i, slot in slots if isinstance(slot, Stored)}


def first_call(case: OpCase) -> TargetRow | None:
    """A row as a module could have it: weights in floats, no state, sizes that are known, and
    numbers of which a range with some bits can be taken."""
    floats = all(s.encoding.kind in _FLOATS for s in case.slots if isinstance(s, Stored))
    if not floats or any(isinstance(slot, State) for slot in case.slots):
        return None
    arrays = iter(case.calls[0])
    slots = []
    for slot in case.slots:
        if isinstance(slot, Input):
            given = next(arrays)
            if given.size == 0:
                return None
            slots.append(replace(slot, shape=given.shape))
        else:
            slots.append(slot)
    row = TargetRow(replace(case, slots=tuple(slots), calls=case.calls[:1]), case.calls[0])
    numbers = [float(np.abs(a).max(initial=0.0)) for a in (*row.arrays, *row.case.run_reference())]
    return row if all(1e-6 < n < 1e9 for n in numbers) else None


class Joined:
    """Rows side by side in one method; row ``n`` has the output ``n.out``."""

    def __init__(self, rows: Sequence[TargetRow]) -> None:
        self.rows = rows
        self.graph = Graph("forward")
        self.weights: dict[str, Stored] = {}
        self.inputs: dict[str, Array] = {}
        for number, row in enumerate(rows):
            part = row.graph()
            names = [value.name for value in part.inputs]
            for value in {id(v): v for v in part.values()}.values():
                self._rename(value, number)
            stored = {f"{number}.{name}": slot for name, slot in row.stored().items()}
            self.weights |= stored
            given = dict(zip(names, row.arrays, strict=True))
            self.inputs |= {f"{number}.{name}": array for name, array in given.items()}
            self.graph.inputs += part.inputs
            self.graph.outputs += part.outputs
            self.graph.nodes += part.nodes
        self.graph.check()

    def _rename(self, value: Value, number: int) -> None:
        value.name = f"{number}.{value.name}"
        if value.weight is not None:
            value.weight = replace(value.weight, name=value.name, source=RowSource(value.name))

    def export(self, target: Target, recipe: str, path: Path) -> Program:
        """The program for a target, with whatever that compiles."""
        return Program(self.write(target, recipe, path))

    def write(self, target: Target, recipe: str, path: Path) -> Path:
        """The file for a target, whatever its kind."""
        arrays = {name: slot.array for name, slot in self.weights.items()}
        portable = Portable(
            "rows",
            (self.graph,),
            {name: slot.encoding for name, slot in self.weights.items()},
            ArrayCheckpoint(arrays, path),
            Recipe.named("fp16"),
            recipe,
            "rows of the op table",
            (),
            0,
            lambda _: AboutModule(),
            Samples(examples=[self.inputs], least_snr=-999.0),
        )
        return Export.of(portable, [target]).run(path)

    def expected(self) -> dict[str, Array]:
        """What the reference computes, in floats."""
        from satchel.graph.reference import ReferenceInterpreter

        def read(weight: Any) -> Array:
            slot = self.weights[weight.name]
            return stored_values(slot.array, slot.encoding)

        return ReferenceInterpreter(read).run(self.graph, self.inputs)


def difference(got: Array, wanted: Array) -> float:
    """The length of the difference, in parts of the length of what is wanted."""
    length = float(np.linalg.norm(wanted.astype(np.float64))) or 1.0
    return float(np.linalg.norm(got.astype(np.float64) - wanted)) / length
