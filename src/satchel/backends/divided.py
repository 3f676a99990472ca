"""Programs of which a target runs some nodes and the CPU the rest.

A method is divided into parts that run one after the other; all of them are methods of the file, so
that the native core can run the CPU's. States (KV caches) are the CPU's.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from satchel.errors import ExecutionError
from satchel.graph.divide import CPU
from satchel.runtime.program import Instance, Method, Program

Array = NDArray[Any]


class DividedInstance(Instance):
    """Runs divided methods: the CPU's parts in the native core, the others in ``run_part``.

    ``parts`` has the names of the parts of each divided method, in order.
    """

    def __init__(
        self, program: Program, parts: Mapping[str, Sequence[str]], threads: int, name: str
    ) -> None:
        self.program, self._parts = program, parts
        self._cpu = Instance(program, threads)
        self._native = self._cpu._native  # which has the sequences
        self.threads, self.kernels = self._cpu.threads, f"{name} and {self._cpu.kernels}"

    @abstractmethod
    def run_part(self, name: str, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        """What the target computes: the outputs of a part by name."""

    def method(self, name: str) -> Method:
        return DividedMethod(self, name) if name in self._parts else self._cpu.method(name)

    def run_parts(self, method: str, known: dict[str, Array]) -> dict[str, Array]:
        for part in self._parts[method]:
            if part.endswith(f".{CPU}"):
                called = self._cpu.method(part)
                made = called.run(*(known[name] for name in called.inputs))
                known |= zip(called.outputs, made, strict=True)
            else:
                known |= self.run_part(part, known)
        return known


class DividedMethod(Method):
    """A method whose parts run in several places."""

    def __init__(self, instance: DividedInstance, name: str) -> None:
        self._divided = instance
        info = next((m for m in instance.program.methods if m["name"] == name), None)
        if info is None:
            raise ExecutionError(f"there is no method {name!r} in {instance.program.path}")
        self.describe(info)

    def run(self, *arrays: ArrayLike, **named: ArrayLike) -> list[Array]:
        given = dict(zip(self.inputs, self.convert(*arrays, **named), strict=True))
        known = self._divided.run_parts(self.name, given)
        return [np.array(known[name]) for name in self.outputs]
