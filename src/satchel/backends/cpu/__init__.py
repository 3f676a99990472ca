"""The CPU: native kernels over packed weights. It runs the portable methods as they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from satchel import _native
from satchel.backends.base import BaseTarget
from satchel.backends.target import PROGRAM, BackendGroup, Defaults, Target
from satchel.graph.ir import Node
from satchel.options import option
from satchel.runtime.program import Instance, Program

SATCHEL, PTE = PROGRAM.suffix[1:], "pte"


@dataclass(frozen=True)
class PortableTarget(BaseTarget):
    """Nothing lies below the CPU, so what it refuses is an error."""

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


@dataclass(frozen=True)
class CpuTarget(PortableTarget):
    """CPUs by our own core, or in the format ``pte`` by ExecuTorch."""

    format: str = option(
        SATCHEL,
        "the kind of file: satchel, or pte for ExecuTorch's runners and apps (satchel)",
        choices=(SATCHEL, PTE),
    )

    family = "cpu"
    has_packed_bits = True
    backend_group = BackendGroup("xnnpack", not_needed=("extended_ops",))
    form = "cpu"

    @classmethod
    def kind(cls, options: Mapping[str, Any]) -> type[Target]:
        if options.get("format") != PTE:
            return cls
        from satchel.backends.executorch.target import ExecutorchTarget

        return ExecutorchTarget

    @classmethod
    def parse(cls, chip: str, options: Mapping[str, Any]) -> Target:
        kind = cls.kind(options)
        if kind is cls:
            return super().parse(chip, options)
        return kind.parse(chip, {k: v for k, v in options.items() if k != "format"})

    @property
    def usual(self) -> Defaults:
        return Defaults(recipe_by_checkpoint=True)
