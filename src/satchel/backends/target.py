"""What a chip is to the rest of Satchel: the one seam between them.

A backend is a folder with a subclass of :class:`Target`, and one line in ``backends/__init__.py``
that names it, or ``register`` from outside. Exporter, commands and runtime ask a target, and never
what it is called. :class:`satchel.backends.base.BaseTarget` does all as for the CPU, so that a
subclass of it says only what differs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from satchel.graph.ir import Dim, Graph, Node
from satchel.quantize.scale_form import ANY, ScaleForm

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from satchel.calibration.sound import Spoken
    from satchel.encodings.encoding import Encoding
    from satchel.graph.passes import Pass
    from satchel.llm.tokenizer_sources.spec import TokenizerSpec
    from satchel.quantize.recipe import Recipe
    from satchel.runtime.program import Instance, Program
    from satchel.sources.progress import Progress


@dataclass(frozen=True)
class Defaults:
    """What an export has unless it is told otherwise."""

    recipe: str = "8da4w"
    module_recipe: str = "fp32"
    prefill_ar_len: int = 256  # the more, the less often weights are unpacked
    kv_bits: int | None = None  # of recipes that round; None: the recipe's
    speech_recipe: str = "8a8w"
    context: int | None = None  # None: the model's own, if its caches stay small
    # Whether checkpoints that come quantised, or are small, get a recipe of their own instead.
    recipe_by_checkpoint: bool = False


@dataclass(frozen=True)
class LanguageModelRequest:
    """What was asked of a language model's program."""

    mode: str
    context: int
    prefill_tokens: int
    lookahead_rows: int | None  # of a step, where the program guesses by default
    embeddings: bool = False  # whether the program also takes embeddings in place of tokens
    hidden: bool = False  # whether it also gives hidden states


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
    """What ranges are measured with: a text's tokens, a module's example inputs, recordings."""

    tokenizer: TokenizerSpec | None = None
    tokens: Sequence[int] | None = None  # None: no text was given
    texts: Sequence[Sequence[int]] = ()  # the same apart, if samples were chosen one by one
    examples: Sequence[Mapping[str, NDArray[Any]]] = ()
    spoken: Sequence[Spoken] = ()  # recordings, of a model that hears
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
    output_snr: float | None = None  # dB of the outputs, where they were compared


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
    about: Mapping[str, Any] = field(default_factory=dict)  # the metadata, as far as they are known

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
    files: tuple[str, ...] = ()  # what follows the output's stem, where others than a program are


@dataclass(frozen=True)
class Compiled:
    """``files`` go into the program by their names, and what is said of them into its metadata.

    A target that writes files of another kind names them by what follows the output's stem:
    ``.pte`` and ``.tokenizer.json`` of ``model.pte``.
    """

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
class FileKind:
    """What a target writes: ``suffix`` ends its name, and it may be a folder."""

    suffix: str
    is_folder: bool = False


PROGRAM = FileKind(".satchel")


@dataclass(frozen=True)
class Extra:
    """An extra of Satchel's that a target needs, and the module that shows that it is there."""

    name: str
    module: str
    purpose: str


@dataclass(frozen=True)
class Examined:
    """What ``satchel doctor`` says of a target: lines to read, and the same for ``--json``."""

    lines: tuple[str, ...]
    document: Mapping[str, Any]


@dataclass(frozen=True)
class BackendGroup:
    """What ExecuTorch's configurations say of a backend (``backend.NAME``), in a target's words."""

    name: str
    chip: str = ""  # the setting that names the chip,
    usual_chip: str = ""  # what it is where nothing does,
    chip_form: str = "{}"  # and how our names have it
    options: Mapping[str, str] = field(default_factory=dict)  # settings that are options of ours
    switches: Mapping[str, str] = field(default_factory=dict)  # those that turn an option on
    not_needed: tuple[str, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)  # with the reason
    # Of ``quantization.pt2e_quantize``: what precisions that are named after it are here.
    precisions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Target(ABC):
    """A chip that programs are made for. Its fields are its own options (see ``satchel.options``).

    Subclasses are frozen dataclasses.
    """

    family: ClassVar[str]  # what names begin with
    form: ClassVar[str]  # how names are written, for help
    title: ClassVar[str] = ""  # how tables call it, if not by its family in capitals
    extra: ClassVar[Extra | None] = None
    # A kind of file of its own, for what others run: the program is then only on the way to it.
    writes: ClassVar[FileKind] = PROGRAM
    # Which scales 4-bit weights may have.
    scale_form: ClassVar[ScaleForm] = ANY
    # Whether it reads codes of 5 and 6 bits, and K-quants with their own scales; else those of a
    # checkpoint are stored in whole bytes or nibbles.
    has_packed_bits: ClassVar[bool] = False
    # The backend of ExecuTorch's that it stands for.
    backend_group: ClassVar[BackendGroup | None] = None
    # Whether it runs the portable methods themselves, which are in every file.
    portable: ClassVar[bool] = False
    # Whether it compiles models that hear.
    hears: ClassVar[bool] = False
    # Whether its instances count the cycles of each op (start_profile, take_cycles).
    counts_cycles: ClassVar[bool] = False
    # Whether its ops can be timed one by one.
    times_ops: ClassVar[bool] = False

    # What it is called.

    @classmethod
    @abstractmethod
    def parse(cls, chip: str, options: Mapping[str, Any]) -> Target:
        """A target of this family; ``chip`` is what follows the colon of its name."""

    @classmethod
    def kind(cls, options: Mapping[str, Any]) -> type[Target]:
        """What ``parse`` gives with these options, where they choose another family's target."""
        return cls

    @property
    @abstractmethod
    def name(self) -> str:
        """With the chip, if the family has several."""

    @abstractmethod
    def choices(self) -> Iterator[str]:
        """Its own options that are not the usual ones, as parts of a file's name."""

    @classmethod
    @abstractmethod
    def examine(cls) -> Examined | None:
        """What of it this machine has; None if there is nothing to be found out."""

    # Before any work: what it wants, and what it refuses.

    @property
    @abstractmethod
    def usual(self) -> Defaults:
        """What an export for it has unless it is told otherwise."""

    @abstractmethod
    def methods(self, asked: LanguageModelRequest) -> list[MethodWish]:
        """The methods of a language model, each with the tokens of a call."""

    @abstractmethod
    def check_module(self, recipe: str, has_overrides: bool) -> None:
        """Refuse a recipe that it cannot run a module with."""

    @abstractmethod
    def needs_examples(self, recipe: str) -> bool:
        """Whether a module's ranges are measured before anything is written."""

    @abstractmethod
    def module_recipe(self, recipe: str) -> str:
        """How a module's weights are stored before they are quantised, if the recipe does that."""

    @property
    @abstractmethod
    def module_passes(self) -> tuple[Pass, ...]:
        """What is done to a module's graph before its weights are taken."""

    @abstractmethod
    def finish_module(self, module: ModuleGraph, progress: Progress) -> ModuleGraph:
        """Bring a module's graph and weights to what the recipe says."""

    # Where the nodes run.

    @abstractmethod
    def supports(self, node: Node) -> str | None:
        """None if it runs this node, or the reason why it does not."""

    @abstractmethod
    def place(self, graphs: Sequence[Graph]) -> Placement:
        """Where the nodes of a program run, and the graphs divided accordingly."""

    # Compiling, and afterwards.

    @abstractmethod
    def prepare(self, draft: Draft) -> Compilation | None:
        """The work that is left, after all that can be refused has been; None if there is none."""

    @abstractmethod
    def after_export(self, program: Program) -> None:
        """What is done with a finished file, as the target's own options ask for."""

    @abstractmethod
    def report(self, program: Program) -> list[str]:
        """Lines that ``satchel export`` prints of what was made."""

    # Running.

    @classmethod
    @abstractmethod
    def open_written(cls, path: Path) -> Program:
        """A file of the kind that it ``writes``, where that is no program, to be run here."""

    @abstractmethod
    def open(self, program: Program, threads: int = 0) -> Instance:
        """The program running on this chip."""

    @abstractmethod
    def open_with_cache(self, program: Program, threads: int, cache_memory: int) -> Instance:
        """The same with so many bytes for the caches of all sequences, if they are to be chosen."""

    @abstractmethod
    def with_layers(self, layers: int) -> Target:
        """The same chip, with so many layers of a language model and the others on the CPU."""

    @abstractmethod
    def open_reference(self, program: Program) -> Instance:
        """What the chip should compute, in the reference."""
