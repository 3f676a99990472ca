"""What a chip is to the rest of Satchel: the one seam between them.

A backend is a folder with a subclass of :class:`Target`, and one line in ``backends/__init__.py``
that names it, or ``register`` from outside. Exporter, commands and runtime ask a target, and never
what it is called. What a target leaves out is done as for the CPU.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from satchel.errors import ConfigError, GraphError
from satchel.graph.ir import Dim, Graph, Node, Sym
from satchel.program.names import KV_METHOD, LOOKAHEAD_METHOD, PREFILL_METHOD

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from satchel.graph.passes import Pass
    from satchel.llm.tokenizer_sources.spec import TokenizerSpec
    from satchel.quantize.encoding import Encoding
    from satchel.quantize.recipe import Recipe
    from satchel.runtime.program import Instance, Program
    from satchel.sources.progress import Progress

STATIC = "int8"  # the recipe that measures the ranges of a module's values


@dataclass(frozen=True)
class Defaults:
    """What an export has unless it is told otherwise."""

    recipe: str = "8da4w"
    module_recipe: str = "fp32"
    prefill_ar_len: int = 256  # the more, the less often weights are unpacked
    kv_bits: int | None = None  # None: the recipe's
    context: int = 2048


@dataclass(frozen=True)
class LanguageModelRequest:
    """What was asked of a language model's program."""

    mode: str
    context: int
    prefill_tokens: int
    lookahead_rows: int | None  # of a step, where the program guesses by default


@dataclass(frozen=True)
class MethodWish:
    """A method that a target wants: how many tokens a call has, at most.

    One that is ``temporary`` is there while the target compiles, and not in the finished file.
    """

    name: str
    tokens: Dim
    temporary: bool = False


@dataclass(frozen=True)
class Placement:
    """Where nodes run: the graphs, divided where the target divides them, and a report."""

    graphs: tuple[Graph, ...]
    nodes: Mapping[str, int]  # how many run where
    fallbacks: tuple[Mapping[str, Any], ...] = ()  # op, nodes, reason

    def to_dict(self) -> dict[str, Any]:
        return {"nodes": dict(self.nodes), "fallbacks": [dict(f) for f in self.fallbacks]}


@dataclass(frozen=True)
class Samples:
    """What ranges are measured with: a text's tokens, or a module's example inputs."""

    tokenizer: TokenizerSpec | None = None
    tokens: Sequence[int] | None = None  # None: no text was given
    examples: Sequence[Mapping[str, NDArray[Any]]] = ()
    observer: str = "minmax"
    least_snr: float = 15.0


@dataclass(frozen=True)
class ModuleGraph:
    """A module's graph and weights on their way to what the recipe says."""

    graph: Graph
    arrays: Mapping[str, NDArray[Any]]
    encodings: Mapping[str, Encoding]
    recipe: Recipe
    recipe_name: str
    samples: Samples
    noise: Mapping[str, float] = field(default_factory=dict)  # dB by layer
    kept_in_float: tuple[str, ...] = ()  # layers that integers would have hurt too much


@dataclass(frozen=True)
class Draft:
    """A program whose layout is known and of which no weight has been read."""

    graphs: tuple[Graph, ...]
    methods: tuple[MethodWish, ...]  # what the target wanted of a language model; of a module none
    encodings: Mapping[str, Encoding]
    weight_bytes: Mapping[str, int]
    recipe: Recipe
    recipe_name: str
    context: int = 0
    adapters: tuple[str, ...] = ()  # that are kept apart
    samples: Samples = field(default_factory=Samples)

    @property
    def is_language_model(self) -> bool:
        return bool(self.methods)


@dataclass(frozen=True)
class CompilePlan:
    """What compiling will take and give."""

    payload_bytes: int
    peak_memory: int
    document: Mapping[str, Any]  # for --json
    lines: tuple[str, ...] = ()  # for --plan


@dataclass(frozen=True)
class Compiled:
    """``files`` go into the program by their names, and what is said of them into its metadata."""

    files: Mapping[str, Path]
    summary: Mapping[str, Any]
    found: Mapping[str, Any] = field(default_factory=dict)  # replaces fields of the metadata


class Compilation(Protocol):
    """The work that a target has with a draft, checked and ready to be done."""

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """Further methods that the file must have: what the CPU does for the target."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know before it starts."""

    def plan(self) -> CompilePlan: ...

    def compile(self, program: Program, folder: Path, progress: Progress) -> Compiled:
        """``program`` is the draft as written; files are made in ``folder``."""


@dataclass(frozen=True)
class Extra:
    """An extra of Satchel's that a target needs, and the module that shows that it is there."""

    name: str
    module: str
    purpose: str


@dataclass(frozen=True)
class Target(ABC):
    """A chip that programs are made for. Its fields are its own options (see ``satchel.options``).

    Subclasses are frozen dataclasses. ``supports`` and ``open`` are all that one must have;
    ``prepare`` is for those with a compiler.
    """

    family: ClassVar[str]  # what names begin with
    form: ClassVar[str]  # how names are written, for help
    defaults: ClassVar[Defaults] = Defaults()
    extra: ClassVar[Extra | None] = None
    # Whether it runs the portable methods themselves, which are in every file.
    portable: ClassVar[bool] = False

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

    # Before any work: what it wants, and what it refuses.

    @property
    def usual(self) -> Defaults:
        return self.defaults

    def methods(self, asked: LanguageModelRequest) -> list[MethodWish]:
        """The methods of a language model, each with the tokens of a call."""
        from satchel.llm.lookahead.options import MAX_ROWS

        wanted = [MethodWish(KV_METHOD, 1)]
        if asked.mode != "kv":
            rows = Sym("S", min(asked.prefill_tokens, asked.context))
            # It shares all weights and caches, so that it costs a few kilobytes.
            tree = Sym("S", min(MAX_ROWS, asked.context))
            wanted += [MethodWish(PREFILL_METHOD, rows), MethodWish(LOOKAHEAD_METHOD, tree)]
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
        from satchel.graph.passes import IMPORTED

        return IMPORTED

    def finish_module(self, module: ModuleGraph, progress: Progress) -> ModuleGraph:
        """Quantise a module with the recipe ``int8``, or prepare its graph to run in floats."""
        from satchel.graph.passes import FLOATS, optimize

        if module.recipe_name == STATIC:
            return _in_integers(module, progress)
        optimize(module.graph, FLOATS)
        return module

    # Where the nodes run.

    @abstractmethod
    def supports(self, node: Node) -> str | None:
        """None if it runs this node, or the reason why it does not."""

    def place(self, graphs: Sequence[Graph]) -> Placement:
        """Where the nodes of a program run. What it does not take is the CPU's, with the reason."""
        counts: Counter[str] = Counter()
        fallbacks: dict[str, dict[str, Any]] = {}
        for graph in graphs:
            for node in graph.nodes:
                reason = self.supports(node)
                counts[self.family if reason is None else "cpu"] += 1
                if reason is None:
                    continue
                if self.portable:
                    raise GraphError(f"{graph.name}: {reason}")
                entry = fallbacks.setdefault(node.op, {"op": node.op, "nodes": 0, "reason": reason})
                entry["nodes"] += 1
        return Placement(tuple(graphs), dict(counts), tuple(fallbacks.values()))

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

    @abstractmethod
    def open(self, program: Program, threads: int = 0) -> Instance:
        """The program running on this chip."""

    def open_reference(self, program: Program) -> Instance:
        """What the chip should compute, in the reference."""
        from satchel.eval.reference_instance import ReferenceInstance

        return ReferenceInstance(program)


def _in_integers(module: ModuleGraph, progress: Progress) -> ModuleGraph:
    """All layers that no override names run in integers."""
    from satchel.quantize.encoding import Encoding
    from satchel.quantize.static.module import quantize_static

    arrays, samples = module.arrays, module.samples
    kept = {n for n in arrays for o in module.recipe.overrides if o.matches(n)}
    count = len(samples.examples)
    progress("Calibrating", 0, count)
    result = quantize_static(
        module.graph,
        lambda weight: arrays[weight.name],
        samples.examples,
        samples.observer,
        kept,
        samples.least_snr,
    )
    progress("Calibrating", count, count)
    return replace(
        module,
        graph=result.graph,
        arrays={**arrays, **result.codes},
        encodings={**module.encodings, **dict.fromkeys(result.codes, Encoding("matrix_i8"))},
        noise=result.noise,
        kept_in_float=tuple(result.kept),
    )
