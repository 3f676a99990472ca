"""What targets have in common that write files for the runtimes of others."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from satchel.backends.base import BaseTarget, refuse_experts
from satchel.backends.target import LanguageModelRequest, MethodWish, ModuleGraph, Target
from satchel.errors import ConfigError, ExecutionError, UnsupportedOperatorError
from satchel.graph.ir import DType, Graph, Node, Sym, largest
from satchel.graph.passes import WRITTEN_OUT
from satchel.program.names import KV_METHOD, PREFILL_METHOD

if TYPE_CHECKING:
    from satchel.graph.passes import Pass
    from satchel.runtime.program import Instance, Program
    from satchel.sources.progress import Progress


@dataclass(frozen=True)
class ForeignTarget(BaseTarget):
    """A program is only on the way to its file, which holds all of it: nothing is left to the CPU,
    and nothing of ours runs it."""

    file: ClassVar[str]  # what it writes, in words
    run_by: ClassVar[str]  # the advice for who wants to run it

    def methods(self, asked: LanguageModelRequest) -> list[MethodWish]:
        """One that reads a token and, unless the mode is kv, one that reads several."""
        if asked.mode == "lookahead":
            raise ConfigError(f"{self.file} does not guess ahead", "Leave out mode.")
        wanted = [MethodWish(KV_METHOD, 1)]
        if asked.mode != "kv":
            rows = Sym("S", min(asked.prefill_tokens, asked.context))
            wanted.append(MethodWish(PREFILL_METHOD, rows))
        return wanted

    @property
    def module_passes(self) -> tuple[Pass, ...]:
        return WRITTEN_OUT

    def finish_module(self, module: ModuleGraph, progress: Progress) -> ModuleGraph:
        return module

    @classmethod
    def open_written(cls, path: Path) -> Program:
        """A file that it wrote, to be run here: by default nothing of ours can."""
        advice = f"{cls.run_by} A .satchel program for cpu is run here."
        raise ExecutionError(f"{path} is for {cls.title}", advice)

    def open(self, program: Program, threads: int = 0) -> Instance:
        raise ExecutionError(f"{program.path} is on its way to {self.title}", self.run_by)


def require_all(target: Target, nodes: Sequence[Node]) -> None:
    """Refuse nodes that a target does not take, where nothing else could run them."""
    refuse_experts(nodes, target.name)
    refused = [f"{node.op}: {reason}" for node in nodes if (reason := target.supports(node))]
    if refused:
        raise UnsupportedOperatorError(
            list(dict.fromkeys(refused)), "Export a .satchel program for cpu instead."
        )


def lacks_dimensions(node: Node) -> bool:
    """Whether a node computes with a number that is no tensor; one that is stored is none."""
    computed = [v for v in node.inputs if v and v.constant is None and v.weight is None]
    return any(not value.shape for value in (*computed, *node.outputs))


def require_ops(graph: Graph, ops: Collection[str], file: str) -> None:
    """Refuse a module's nodes that have a form in language models alone."""
    refused = dict.fromkeys(node.op for node in graph.nodes if node.op not in ops)
    if refused:
        raise UnsupportedOperatorError(
            [f"{op}: it has no form for modules in {file}" for op in refused],
            "Export this module for cpu.",
        )


def require_fixed_floats(graph: Graph) -> None:
    """Refuse a module with states, with inputs or outputs of other numbers than 32-bit floats, or
    sizes known only when it runs."""
    named = [f"{name}: a buffer that the module changes" for name in graph.states]
    for value in graph.inputs:
        if value.dtype != DType.f32:
            named.append(f"{value.name}: an input of {value.dtype.name} numbers")
        if tuple(value.shape) != largest(value.shape):
            named.append(f"{value.name}: a size that is known only when it runs")
    for value in graph.outputs:
        if value.dtype != DType.f32:
            named.append(f"{value.name}: an output of {value.dtype.name} numbers")
    if named:
        raise UnsupportedOperatorError(named, "Export this module for cpu.")
