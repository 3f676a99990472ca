"""ExecuTorch's runners as a target: they run .pte files, and not programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from satchel.backends.base import BaseTarget
from satchel.backends.executorch.rules import check_recipe, require_packages
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
from satchel.options import SWITCH, option
from satchel.program.names import KV_METHOD, PREFILL_METHOD
from satchel.quantize.scale_form import BRAIN

if TYPE_CHECKING:
    from satchel.runtime.program import Instance, Program


@dataclass(frozen=True)
class ExecutorchTarget(BaseTarget):
    """CPUs by ExecuTorch: XNNPACK's delegate, and ExecuTorch's kernels for what it does not take.

    ``--target cpu --format pte`` is the same.
    """

    all_logits: bool = option(
        False, "logits of all tokens of a call and not of the last one, for evaluating", SWITCH
    )

    family = "executorch"
    form = "executorch"
    writes = FileKind(".pte")
    scale_form = BRAIN  # XNNPACK's
    extra = Extra("executorch", "executorch", "satchel export --format pte")

    def choices(self) -> Iterator[str]:
        if self.all_logits:
            yield "all-logits"

    @property
    def usual(self) -> Defaults:
        return Defaults(prefill_ar_len=128, kv_bits=32, context=2048)

    def methods(self, asked: LanguageModelRequest) -> list[MethodWish]:
        """The one that reads several tokens becomes ``forward``; the other shows its meaning."""
        if asked.mode == "lookahead":
            raise ConfigError("ExecuTorch's runners do not guess ahead", "Leave out mode.")
        wanted = [MethodWish(KV_METHOD, 1)]
        if asked.mode != "kv":
            rows = Sym("S", min(asked.prefill_tokens, asked.context))
            wanted.append(MethodWish(PREFILL_METHOD, rows))
        return wanted

    def supports(self, node: Node) -> str | None:
        from satchel.backends.executorch.language_model import BETWEEN
        from satchel.backends.executorch.part import XNN_OPS

        if node.op in BETWEEN or node.op in XNN_OPS:
            return None
        return f"{node.op} has no form in a .pte file"

    def place(self, graphs: Sequence[Graph]) -> Placement:
        require_packages()
        from satchel.backends.executorch.language_model import BETWEEN

        nodes = [node for graph in graphs for node in graph.nodes]
        refused = [f"{node.op}: {reason}" for node in nodes if (reason := self.supports(node))]
        if refused:
            raise UnsupportedOperatorError(
                list(dict.fromkeys(refused)), "Export a .satchel program for cpu instead."
            )
        counts = Counter("kernels" if node.op in BETWEEN else "xnnpack" for node in nodes)
        return Placement(tuple(graphs), counts)

    def prepare(self, draft: Draft) -> Compilation:
        check_recipe(draft)
        from satchel.backends.executorch.export import PteLanguageModel

        return PteLanguageModel(draft, self.all_logits)

    def open(self, program: Program, threads: int = 0) -> Instance:
        raise ExecutionError(
            f"{program.path} is on its way to ExecuTorch", "Run the .pte file in a runner of its."
        )
