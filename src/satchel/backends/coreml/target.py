"""Core ML as a target: packages for Apple's systems."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from satchel.backends.base import BaseTarget
from satchel.backends.coreml.rules import SYSTEMS, UNITS, check_recipe, require_packages
from satchel.backends.target import (
    Compilation,
    Defaults,
    Draft,
    Extra,
    FileKind,
    LanguageModelRequest,
    MethodWish,
    Placement,
)
from satchel.errors import ConfigError, ExecutionError, UnsupportedOperatorError
from satchel.graph.ir import Graph, Node, Sym
from satchel.options import option
from satchel.program.names import KV_METHOD, PREFILL_METHOD
from satchel.quantize.scale_form import ABOVE_ZERO

if TYPE_CHECKING:
    from satchel.runtime.program import Instance, Program

NEWEST = SYSTEMS[-1]


@dataclass(frozen=True)
class CoreMlTarget(BaseTarget):
    """Apple's systems from one version on: ``coreml:iOS18``, which is also macOS 15."""

    system: str = NEWEST
    units: str = option(
        "all",
        "what it is laid out for: ane (the Neural Engine: channels first, layers as convolutions, "
        "a large head in parts), gpu, or all (all)",
        choices=UNITS,
    )

    family = "coreml"
    form = "coreml[:iOS16|iOS17|iOS18]"
    writes = FileKind(".mlpackage", is_folder=True)
    scale_form = ABOVE_ZERO
    extra = Extra("coreml", "coremltools", "satchel export --target coreml")

    @classmethod
    def parse(cls, chip: str, options: Mapping[str, Any]) -> CoreMlTarget:
        known = {name.lower(): name for name in SYSTEMS}
        if chip and chip.lower() not in known:
            raise ConfigError(
                f"there is no target {'coreml:' + chip!r}",
                f"Systems: {', '.join(SYSTEMS)}; newer ones run what iOS18 does.",
            )
        return cls(system=known.get(chip.lower(), NEWEST), **options)

    @property
    def name(self) -> str:
        return f"coreml:{self.system}"

    @property
    def stateful(self) -> bool:
        """Whether the system has models with states, several functions, and weights in blocks."""
        return self.system == NEWEST

    def choices(self) -> Iterator[str]:
        if self.units != "all":
            yield self.units

    @property
    def usual(self) -> Defaults:
        recipe = "8da4w" if self.stateful else "16a8w"
        return Defaults(recipe, "fp16", prefill_ar_len=64, kv_bits=16, context=2048)

    def methods(self, asked: LanguageModelRequest) -> list[MethodWish]:
        if asked.mode == "lookahead":
            raise ConfigError("a Core ML package does not guess ahead", "Leave out mode.")
        wanted = [MethodWish(KV_METHOD, 1)]
        if asked.mode != "kv":
            rows = Sym("S", min(asked.prefill_tokens, asked.context))
            wanted.append(MethodWish(PREFILL_METHOD, rows))
        return wanted

    def supports(self, node: Node) -> str | None:
        from satchel.backends.coreml.function import OPS

        return None if node.op in OPS else f"{node.op} has no form in an ML program here"

    def place(self, graphs: Sequence[Graph]) -> Placement:
        require_packages()
        nodes = [node for graph in graphs for node in graph.nodes]
        refused = [f"{node.op}: {reason}" for node in nodes if (reason := self.supports(node))]
        if refused:
            raise UnsupportedOperatorError(
                list(dict.fromkeys(refused)), "Export a .satchel program for cpu instead."
            )
        return Placement(tuple(graphs), {self.family: len(nodes)})

    def prepare(self, draft: Draft) -> Compilation:
        check_recipe(draft, self.stateful)
        from satchel.backends.coreml.export import CoreMlLanguageModel

        return CoreMlLanguageModel(draft, self.system, self.units)

    def open(self, program: Program, threads: int = 0) -> Instance:
        raise ExecutionError(
            f"{program.path} is on its way to Core ML", "Run the .mlpackage on an Apple device."
        )
