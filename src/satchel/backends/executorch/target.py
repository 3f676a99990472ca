"""ExecuTorch's runners as a target: they run .pte files, and not programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from satchel.backends.base import STATIC, in_integers
from satchel.backends.executorch.rules import check_recipe, require_packages
from satchel.backends.foreign import (
    ForeignTarget,
    require_all,
    require_fixed_floats,
    require_ops,
)
from satchel.backends.target import (
    Compilation,
    Defaults,
    Draft,
    Extra,
    FileKind,
    ModuleGraph,
    Placement,
)
from satchel.errors import RecipeError
from satchel.graph.ir import Graph, Node
from satchel.graph.ops.quantized import LIMITS
from satchel.graph.passes.fusion import separate_activations
from satchel.options import SWITCH, option
from satchel.quantize.scale_form import BRAIN

if TYPE_CHECKING:
    from satchel.sources.progress import Progress


@dataclass(frozen=True)
class ExecutorchTarget(ForeignTarget):
    """CPUs by ExecuTorch: XNNPACK's delegate, and ExecuTorch's kernels for what it does not take.

    ``--target cpu --format pte`` is the same. Of a language model's methods the one that reads
    several tokens becomes ``forward``; the other shows what it means.
    """

    all_logits: bool = option(
        False, "logits of all tokens of a call and not of the last one, for evaluating", SWITCH
    )

    family = "executorch"
    form = "executorch"
    title = "ExecuTorch"
    file = "a .pte file"
    run_by = "Run the .pte file in a runner of its."
    writes = FileKind(".pte")
    scale_form = BRAIN  # XNNPACK's
    extra = Extra("executorch", "executorch", "satchel export --format pte")

    def choices(self) -> Iterator[str]:
        if self.all_logits:
            yield "all-logits"

    @property
    def usual(self) -> Defaults:
        return Defaults(prefill_ar_len=128, kv_bits=32, context=2048)

    def check_module(self, recipe: str, has_overrides: bool) -> None:
        if recipe not in ("fp32", STATIC) or has_overrides:
            raise RecipeError(
                f"a module's .pte file is of 32-bit floats or of 8 bits, not {recipe}"
                + (" for some layers" if has_overrides else ""),
                "Use --recipe fp32 or int8, without --override; with --least-snr layers that 8 "
                "bits would hurt stay in floats.",
            )

    def finish_module(self, module: ModuleGraph, progress: Progress) -> ModuleGraph:
        if module.recipe_name != STATIC:
            return module
        separate_activations(module.graph, LIMITS)  # XNNPACK's layers only limit their results
        return in_integers(module, progress, plain=True)

    def supports(self, node: Node) -> str | None:
        from satchel.backends.executorch import integer_ops  # noqa: F401  (it registers)
        from satchel.backends.executorch.image_ops import why_not
        from satchel.backends.executorch.language_model import BETWEEN
        from satchel.backends.executorch.part import XNN_OPS

        if node.op in BETWEEN or node.op in XNN_OPS:
            return why_not(node)
        return f"{node.op} has no form in a .pte file"

    def place(self, graphs: Sequence[Graph]) -> Placement:
        require_packages()
        from satchel.backends.executorch.language_model import BETWEEN

        nodes = [node for graph in graphs for node in graph.nodes]
        require_all(self, nodes)
        counts = Counter("kernels" if node.op in BETWEEN else "xnnpack" for node in nodes)
        return Placement(tuple(graphs), counts)

    def prepare(self, draft: Draft) -> Compilation:
        check_recipe(draft)
        from satchel.backends.executorch.export import PteLanguageModel, PteModule

        if draft.is_language_model:
            return PteLanguageModel(draft, self.all_logits)
        from satchel.backends.executorch.module import MODULE_OPS

        require_fixed_floats(draft.graphs[0])
        require_ops(draft.graphs[0], MODULE_OPS, self.file)
        return PteModule(draft)
