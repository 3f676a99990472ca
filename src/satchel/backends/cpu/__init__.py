"""The CPU: native kernels over packed weights. It runs the portable methods as they are."""

from __future__ import annotations

from dataclasses import dataclass

from satchel import _native
from satchel.backends.base import BaseTarget
from satchel.graph.ir import Node
from satchel.runtime.program import Instance, Program


@dataclass(frozen=True)
class CpuTarget(BaseTarget):
    """Nothing lies below the CPU, so what it refuses is an error."""

    family = "cpu"
    form = "cpu"
    portable = True
    times_ops = True

    def supports(self, node: Node) -> str | None:
        if node.op not in _native.ops():
            return f"the CPU backend has no kernel for {node.op}"
        return None

    def open(self, program: Program, threads: int = 0) -> Instance:
        return self.open_with_cache(program, threads, 0)

    def open_with_cache(self, program: Program, threads: int, cache_memory: int) -> Instance:
        return Instance(program, threads, cache_memory)
