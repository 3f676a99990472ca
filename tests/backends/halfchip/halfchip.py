"""A chip that runs half of the ops, and the CPU the rest: the smallest whole backend."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from satchel.backends.base import BaseTarget
from satchel.backends.divided import DividedInstance
from satchel.backends.target import Compilation, Compiled, CompilePlan, Draft, Examined
from satchel.graph.ir import Graph, Node
from satchel.graph.reference import ReferenceInterpreter
from satchel.options import option
from satchel.program.stored_graphs import read_graphs
from satchel.runtime.program import Program

OPS = {"linear", "conv2d", "rms_norm", "add", "mul", "silu_mul", "gelu", "relu", "embedding"}


@dataclass(frozen=True)
class HalfChip(BaseTarget):
    """Its fields are its own options, on the command line and in YAML files too."""

    note: str = option("", "a remark that goes into the program", metavar="TEXT")

    family = "half"
    form = "half"
    title = "Half chip"

    @classmethod
    def examine(cls) -> Examined:
        return Examined(("half chip in numpy: --target half",), {"chips": 1})

    def supports(self, node: Node) -> str | None:
        return None if node.op in OPS else f"the half chip has no {node.op}"

    def prepare(self, draft: Draft) -> Compilation:
        return HalfCompilation(draft, self.note)

    def open(self, program: Program, threads: int = 0) -> HalfInstance:
        return HalfInstance(program, threads)


@dataclass(frozen=True)
class HalfCompilation:
    """Compiling is writing the chip's weights as it wants them, and the order of the parts."""

    draft: Draft
    note: str
    graphs: tuple[Graph, ...] = ()  # further methods for the CPU: none
    notes: tuple[str, ...] = ()

    def plan(self) -> CompilePlan:
        size = sum(4 * int(np.prod(shape)) for shape in _weights(self.draft.graphs).values())
        return CompilePlan(size, 2 * size, {"bytes": size}, (f"half chip    {size} bytes",))

    def compile(self, program: Program, folder: Path, progress: Any) -> Compiled:
        order: dict[str, list[str]] = {}
        for part in self.draft.graphs:
            if part.name.endswith((".half", ".cpu")):
                order.setdefault(part.name.rsplit(".", 2)[0], []).append(part.name)
        (folder / "parts.json").write_text(json.dumps(order))
        weights = sorted(_weights(read_graphs(program).values()))
        arrays = [program.weight(name).astype(np.float32) for name in weights]
        (folder / "weights.bin").write_bytes(b"".join(array.tobytes() for array in arrays))
        files = {path.name: path for path in folder.iterdir()}
        return Compiled(files, {"note": self.note, "weights": len(weights)})


def _weights(graphs: Iterable[Graph]) -> dict[str, tuple[int, ...]]:
    """The shapes of the weights that the chip reads."""
    mine = [graph for graph in graphs if graph.name.endswith(".half")]
    return {weight.name: weight.shape for graph in mine for weight in graph.weights()}


class HalfInstance(DividedInstance):
    """Runs its parts with numpy, from its payload."""

    other_bits_in_blocks = "numpy may add up a block in another order than a row"

    def __init__(self, program: Program, threads: int = 0) -> None:
        parts = json.loads(program.payload("parts.json"))
        super().__init__(program, parts, threads, "half")
        self._graphs = read_graphs(program)
        shapes = _weights(self._graphs.values())
        numbers, weights = np.frombuffer(program.payload("weights.bin"), np.float32), {}
        for name in sorted(shapes):
            size = int(np.prod(shapes[name]))
            weights[name], numbers = numbers[:size].reshape(shapes[name]), numbers[size:]
        self._interpreter = ReferenceInterpreter(lambda weight: weights[weight.name])

    def run_part(self, name: str, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        return self._interpreter.run(self._graphs[name], inputs)
