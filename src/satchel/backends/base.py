"""What is done for a target as for the CPU, until it says otherwise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from satchel.backends.reference import ReferenceInstance
from satchel.backends.target import (
    Compilation,
    Defaults,
    Draft,
    Examined,
    LanguageModelRequest,
    MethodWish,
    ModuleGraph,
    Placement,
    Target,
)
from satchel.encodings.encoding import Encoding
from satchel.errors import ConfigError, ExecutionError, GraphError
from satchel.graph.divide import divide, touches_state
from satchel.graph.ir import Graph, Node, Sym
from satchel.graph.passes import FLOATS, IMPORTED, Pass, optimize
from satchel.program.names import (
    EMBED_METHOD,
    EMBEDDED_METHOD,
    HIDDEN_METHOD,
    KV_METHOD,
    LOOKAHEAD_METHOD,
    PREFILL_METHOD,
    SHORT_STEP,
)
from satchel.quantize.static.module import quantize_static
from satchel.runtime.program import Instance, Program
from satchel.sources.progress import Progress

STATIC = "int8"  # the recipe that measures the ranges of a module's values
STATES = "the CPU has the states"


@dataclass(frozen=True)
class BaseTarget(Target):
    """Does all as for the CPU. ``supports`` and ``open`` are all that a subclass must have;
    ``prepare`` is for those with a compiler."""

    @classmethod
    def parse(cls, chip: str, options: Mapping[str, Any]) -> Target:
        """A target of this family; ``chip`` is what follows the colon of its name."""
        if chip:
            raise ConfigError(
                f"there is no target {cls.family + ':' + chip!r}", f"Write {cls.form}."
            )
        return cls(**options)

    @property
    def name(self) -> str:
        return self.family

    def choices(self) -> Iterator[str]:
        """Its own options that are not the usual ones, as parts of a file's name."""
        return iter(())

    @classmethod
    def examine(cls) -> Examined | None:
        """What of it this machine has; None if there is nothing to be found out."""
        return None

    # Before any work: what it wants, and what it refuses.

    @property
    def usual(self) -> Defaults:
        return Defaults()

    def methods(self, asked: LanguageModelRequest) -> list[MethodWish]:
        """The methods of a language model, each with the tokens of a call."""
        wanted = [MethodWish(KV_METHOD, 1)]
        if asked.mode != "kv":
            rows = Sym("S", min(asked.prefill_tokens, asked.context))
            # It shares all weights and caches, so that it costs a few kilobytes.
            tree = Sym("S", min(SHORT_STEP, asked.context))
            wanted += [MethodWish(PREFILL_METHOD, rows), MethodWish(LOOKAHEAD_METHOD, tree)]
            if asked.embeddings:
                wanted += [MethodWish(EMBED_METHOD, rows), MethodWish(EMBEDDED_METHOD, rows)]
            if asked.hidden:
                wanted.append(MethodWish(HIDDEN_METHOD, rows))
        return wanted

    def check_module(self, recipe: str, has_overrides: bool) -> None:
        """Refuse a recipe that it cannot run a module with."""
        return

    def needs_examples(self, recipe: str) -> bool:
        """Whether a module's ranges are measured before anything is written."""
        return recipe == STATIC

    def module_recipe(self, recipe: str) -> str:
        """How a module's weights are stored before they are quantised, if the recipe does that."""
        # What does not run in integers stays in floats, or is what an override says.
        return "fp32" if recipe == STATIC else recipe

    @property
    def module_passes(self) -> tuple[Pass, ...]:
        """What is done to a module's graph before its weights are taken."""
        return IMPORTED

    def finish_module(self, module: ModuleGraph, progress: Progress) -> ModuleGraph:
        """Quantise a module with the recipe ``int8``, or prepare its graph to run in floats."""
        if module.recipe_name == STATIC:
            return in_integers(module, progress)
        optimize(module.graph, FLOATS)
        return module

    # Where the nodes run.

    def place(self, graphs: Sequence[Graph]) -> Placement:
        """Where the nodes of a program run. What it does not take, or touches a state, is the
        CPU's: methods are divided into parts, which become methods of the file."""

        def refused(node: Node) -> str | None:
            return self.supports(node) or (
                "the CPU has the states" if touches_state(node) else None
            )

        host: Counter[tuple[str, str]] = Counter()
        for graph in graphs:
            for node in graph.nodes:
                reason = self.supports(node) if self.portable else refused(node)
                if reason is not None and self.portable:
                    raise GraphError(f"{graph.name}: {reason}")
                if reason is not None:
                    host[node.op, reason] += 1
        counts = {self.family: sum(len(graph.nodes) for graph in graphs) - host.total()}
        if self.portable:
            return Placement(tuple(graphs), counts)
        parts = [divide(g, lambda node: refused(node) is None, self.family) for g in graphs]
        return Placement(
            tuple([*graphs, *(part for each in parts for part in each)]),
            counts | {"cpu": host.total()},
            tuple({"op": op, "nodes": n, "reason": reason} for (op, reason), n in host.items()),
        )

    # Compiling, and afterwards.

    def prepare(self, draft: Draft) -> Compilation | None:
        """The work that is left, after all that can be refused has been; None if there is none."""
        return None

    def after_export(self, program: Program) -> None:
        """What is done with a finished file, as the target's own options ask for."""
        return

    def report(self, program: Program) -> list[str]:
        """Lines that ``satchel export`` prints of what was made."""
        return []

    # Running.

    @classmethod
    def open_written(cls, path: Path) -> Program:
        """A file of the kind that it ``writes``, where that is no program, to be run here."""
        raise ExecutionError(
            f"{path} is run by others than Satchel", "Export a .satchel program to run it here."
        )

    def open_with_cache(self, program: Program, threads: int, cache_memory: int) -> Instance:
        """The same with so many bytes for the caches of all sequences, if they are to be chosen."""
        raise ConfigError(
            f"{program.path} is for {self.name}, whose cache has a size of its own",
            "Leave the cache's memory out.",
        )

    def with_layers(self, layers: int) -> Target:
        """The same chip, with so many layers of a language model and the others on the CPU."""
        raise ConfigError(
            f"there are no GPU layers to choose: the target is {self.name}",
            "Leave --gpu-layers out, or choose a GPU: satchel doctor lists them.",
        )

    def open_reference(self, program: Program) -> Instance:
        """What the chip should compute, in the reference."""
        return ReferenceInstance(program)


def in_integers(module: ModuleGraph, progress: Progress, plain: bool = False) -> ModuleGraph:
    """All layers that no override names run in integers; ``plain`` with no more forms of them than
    any library has."""
    arrays, samples = module.arrays, module.samples
    kept = {n for n in arrays for o in module.recipe.overrides if o.matches(n)}
    count = len(samples.examples)
    progress("Calibrating, inputs", 0, count)
    result = quantize_static(
        module.graph,
        lambda weight: arrays[weight.name],
        samples.examples,
        samples.observer,
        kept,
        samples.least_snr,
        plain,
    )
    progress("Calibrating, inputs", count, count)
    return replace(
        module,
        graph=result.graph,
        arrays={**arrays, **result.codes},
        encodings={**module.encodings, **dict.fromkeys(result.codes, Encoding("matrix_i8"))},
        noise=result.noise,
        kept_in_float=tuple(result.kept_in_float),
        output_snr=result.output_snr,
    )


def refuse_experts(nodes: Sequence[Node], target: str) -> None:
    """Refuse a mixture of experts for a target whose layers have weights that are known before."""
    from satchel.backends import portable_names

    if any(node.op == "expert_linear" for node in nodes):
        raise ConfigError(
            f"{target} does not run mixtures of experts: which of them a token takes is known only "
            "when it runs",
            f"Export it with --target {portable_names()}.",
        )
