"""The quantise-dequantise run: the program's graphs and stored weights in the reference.

Weights are the numbers that the stored codes stand for, and activations and caches are rounded
where the program rounds them; between those everything is floating point.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import ArrayLike, NDArray

from satchel.errors import ExecutionError
from satchel.graph.ir import Graph
from satchel.graph.reference import ReferenceInterpreter
from satchel.machine import cores
from satchel.program.stored_graphs import read_graphs
from satchel.runtime.program import Instance, Method, OneSequence, Program


class ReferenceMethod(Method):
    """A method that the reference interpreter runs."""

    def __init__(
        self, interpreter: ReferenceInterpreter, graph: Graph, info: Mapping[str, Any]
    ) -> None:
        self._interpreter = interpreter
        self._graph = graph
        self.describe(info)

    def run(self, *arrays: ArrayLike, **named: ArrayLike) -> list[NDArray[Any]]:
        converted = dict(zip(self.inputs, self.convert(*arrays, **named), strict=True))
        results = self._interpreter.run(self._graph, converted)
        return [results[name] for name in self.outputs]


class ReferenceInstance(OneSequence, Instance):
    """Stands in for an instance of the native core, with states of its own.

    >>> instance = ReferenceInstance(Program("model.satchel"))
    >>> instance.method("kv_forward")(tokens=[65], position=[0]).shape
    (1, 320)
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.threads = cores()
        self.kernels = "reference"
        self._graphs = read_graphs(program)
        self._interpreter = ReferenceInterpreter(lambda weight: program.weight(weight.name))

    def method(self, name: str) -> Method:
        graph = self._graphs.get(name)
        if graph is None:
            raise ExecutionError(f"there is no method {name!r} in {self.program.path}")
        info = next(m for m in self.program.methods if m["name"] == name)
        return ReferenceMethod(self._interpreter, graph, info)
