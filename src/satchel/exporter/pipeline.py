"""The export pipeline from where checkpoints and modules are alike.

    source -> graphs -> encodings        checkpoint.py, torch/export.py: a :class:`Portable`
           -> placed -> laid out         :meth:`Export.of`, which asks the targets
           -> planned, or packed -> compiled -> written

All of it up to the plan is done before the first weight is read. Nothing here is changed once it
is made: each step gives the next one a new value.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from satchel.backends import leading_target, writer_of
from satchel.backends.target import (
    PROGRAM,
    Compilation,
    CompilePlan,
    Draft,
    FileKind,
    MethodWish,
    Placement,
    Samples,
    Target,
)
from satchel.checkpoints.base import Checkpoint
from satchel.encodings.encoding import Encoding
from satchel.errors import ConfigError, GraphError
from satchel.exporter.checks import is_folder
from satchel.exporter.weights import BLOCK_BYTES, WeightError, WeightPacker
from satchel.files import check_free_space, refuse_existing, take_place
from satchel.graph.ir import Graph, Weight
from satchel.machine import cores, current_rss, peak_rss, return_memory
from satchel.program.about import About
from satchel.program.names import payload_name
from satchel.program.writer import ProgramWriter, encode_metadata
from satchel.quantize.recipe import Recipe
from satchel.quantize.rounding import Rounder
from satchel.runtime.program import Program
from satchel.sources.cache import partial_folder
from satchel.sources.progress import Progress, silent

# As long as a real weight error is when written out, for predicting the metadata's size.
_TYPICAL_ERROR = WeightError(squared_error=0.007469, squared_weight=1.0)
_COPY_BLOCK = 8 << 20

Errors = Mapping[str, WeightError]  # by weight
E = TypeVar("E", bound="Export")


def plain_rounding(packer: WeightPacker) -> Rounder | None:
    """Weights are rounded by the native core."""
    return None


@dataclass(frozen=True)
class Portable:
    """A model as any target takes it: what is known before a chip has its say."""

    name: str
    graphs: tuple[Graph, ...]
    encodings: Mapping[str, Encoding]
    checkpoint: Checkpoint
    recipe: Recipe
    recipe_name: str
    description: str  # the recipe and what else was chosen, in one line
    choices: tuple[str, ...]  # as parts of the file's name
    parameters: int
    describe: Callable[[Errors], About]  # but for the targets' part
    samples: Samples = field(default_factory=Samples)
    wishes: tuple[MethodWish, ...] = ()  # of a language model
    context: int = 0
    adapters: tuple[str, ...] = ()  # that are kept apart
    tokenizer: bytes = b""
    text: bytes = b""  # the tokenizer as the native core maps it
    pre_quantized: frozenset[str] = frozenset()  # weights whose codes the checkpoint has
    rounder: Callable[[WeightPacker], Rounder | None] = plain_rounding
    rounding_memory: int = 0


@dataclass(frozen=True)
class ExportPlan:
    """What an export will take, known before any weight is read."""

    file_size: int
    peak_memory: int
    weights: int  # how many
    parameters: int
    methods: tuple[str, ...]
    payloads: Mapping[str, CompilePlan] = field(default_factory=dict)  # by target
    disk: int = 0  # with what is there only while something is compiled

    def to_dict(self) -> dict[str, Any]:
        return {
            "payloads": {name: dict(plan.document) for name, plan in self.payloads.items()},
            "file_size_bytes": self.file_size,
            "peak_memory_bytes": self.peak_memory,
            "weights": self.weights,
            "parameters": self.parameters,
            "methods": list(self.methods),
        }


@dataclass(frozen=True)
class Export:
    """An export that has been checked and can be planned or run."""

    portable: Portable
    targets: tuple[Target, ...]
    placement: Placement
    graphs: tuple[Graph, ...]  # all methods, those that only a compiler needs included
    compilations: Mapping[str, Compilation]  # by target
    progress: Progress = silent

    @staticmethod
    def of(portable: Portable, targets: Sequence[Target], progress: Progress = silent) -> Export:
        """Place the graphs and let every target check what it is to compile."""
        leading = leading_target(targets)
        _check_alone(targets)
        placements = {target.name: target.place(portable.graphs) for target in targets}
        graphs = _joined(placed.graphs for placed in placements.values())
        sizes = {
            w.value.name: w.codes_size + w.scales_size
            for w in ProgramWriter(graphs, portable.encodings).weights
        }
        compilations = {}
        about = portable.describe({}).to_dict()
        for target in targets:
            draft = Draft(
                placements[target.name].graphs,
                portable.wishes,
                portable.encodings,
                sizes,
                portable.recipe,
                portable.recipe_name,
                portable.context,
                portable.adapters,
                portable.samples,
                about,
            )
            compilation = target.prepare(draft)
            if compilation is not None:
                compilations[target.name] = compilation
                graphs = _joined([graphs, compilation.graphs])
        placement = placements[leading.name]
        return Export(portable, tuple(targets), placement, graphs, compilations, progress)

    def with_portable(self: E, portable: Portable) -> E:
        """The same export of something else, checked again."""
        return replace(self, **vars(Export.of(portable, self.targets, self.progress)))

    @property
    def name(self) -> str:
        return self.portable.name

    @property
    def kind(self) -> FileKind:
        """What is written: a program, or what the one target writes instead."""
        return self.targets[0].writes

    @property
    def notes(self) -> list[str]:
        """What the user should know before it starts."""
        return [note for compilation in self.compilations.values() for note in compilation.notes]

    @property
    def kept_graphs(self) -> list[Graph]:
        """The methods of the finished file."""
        dropped = {wish.name for wish in self.portable.wishes if wish.temporary}
        return [graph for graph in self.graphs if graph.name.partition(".")[0] not in dropped]

    @property
    def default_output(self) -> Path:
        """Tells model, target, recipe, and every choice that is not the default."""
        targets = "+".join(target.name.replace(":", "-") for target in self.targets)
        own = [choice for target in self.targets for choice in target.choices()]
        portable = self.portable
        parts = [portable.name, targets, portable.recipe_name, *portable.choices, *own]
        return Path("-".join(parts) + self.kind.suffix)

    def output(self, named: str | os.PathLike[str] | None) -> Path:
        """Where to write: a file, or the usual name in a folder (one there is, or ``FOLDER/``)."""
        if not named:
            return self.default_output
        kind, own = self.kind, Path(named).suffix == self.kind.suffix
        if is_folder(named) and not (own and kind.is_folder):
            return Path(named) / self.default_output
        if kind != PROGRAM and not own:
            raise ConfigError(
                f"{os.fspath(named)} is not the name of a {kind.suffix} file",
                f"Give one that ends in {kind.suffix}.",
            )
        writer = writer_of(named)
        if not own and writer:
            raise ConfigError(
                f"{os.fspath(named)} names a file of the target {writer.family}, and this is for "
                f"{self.targets[0].name}",
                f"Add --target {writer.family}, or give a name that ends in {kind.suffix}.",
            )
        return Path(named)

    @cached_property
    def writer(self) -> ProgramWriter:
        """Writes the portable form."""
        portable = self.portable
        return ProgramWriter(
            self.graphs, portable.encodings, portable.tokenizer, text=portable.text
        )

    def plan(self) -> ExportPlan:
        """File size and peak memory, from shapes alone."""
        return_memory()  # what preparing has freed is not counted
        weights = self.writer.weights
        names = [w.value.name for w in weights if w.encoding.is_matrix]
        metadata = encode_metadata(self._metadata(dict.fromkeys(names, _TYPICAL_ERROR)))
        payloads = {name: compilation.plan() for name, compilation in self.compilations.items()}
        compiled = sum(plan.payload_bytes for plan in payloads.values())
        on_the_way = self.writer.file_size(len(metadata))
        file_size = compiled + (on_the_way if self.kind == PROGRAM else 0)
        # A block being packed, the next one being read and decoded, the codes, and all scales of
        # the weight that has most of them (they are written after its codes).
        blocks = 7 * BLOCK_BYTES // 2
        scales = max((w.scales_size for w in weights), default=0)
        packing = current_rss() + blocks + scales + self.portable.rounding_memory
        compiling = [current_rss() + plan.peak_memory for plan in payloads.values()]
        peak = max(peak_rss(), packing, *compiling)
        methods = tuple(graph.name for graph in self.kept_graphs)
        parameters = self.portable.parameters
        disk = file_size + (file_size if self.kind == PROGRAM else on_the_way)
        return ExportPlan(file_size, peak, len(weights), parameters, methods, payloads, disk)

    def run(self, output: Path, overwrite: bool = False, threads: int = 0) -> Path:
        """Write the program. Nothing is left behind if it fails or is interrupted."""
        _refuse_existing(output, self.kind, overwrite)
        output.absolute().parent.mkdir(parents=True, exist_ok=True)
        plan = self.plan()
        for written in plan.payloads.values():
            for suffix in written.files:
                _refuse_existing(_beside(output, suffix), self.kind, overwrite)
        # With something to compile, the portable form is there a second time.
        size = plan.disk if self.compilations else plan.file_size
        check_free_space(output.absolute().parent, size)
        if self.kind != PROGRAM:
            return self._convert(output, overwrite, threads)
        if self.compilations:
            self._compile(output, overwrite, threads)
        else:
            self._pack(output, overwrite, threads)
        self.portable.checkpoint.close()
        program = Program(output)
        for target in self.targets:
            target.after_export(program)
        return output

    def _pack(self, output: Path, overwrite: bool, threads: int) -> None:
        """Write the portable form."""
        portable = self.portable
        packer = WeightPacker(portable.checkpoint, threads or cores(), portable.pre_quantized)
        packer.rounder = portable.rounder(packer)
        label, total, done = f"Packing {portable.name}", self.writer.weights_size, 0

        def encode(weight: Weight, encoding: Encoding) -> Iterator[bytes | memoryview]:
            nonlocal done
            for block in packer.encode(weight, encoding):
                yield block
                done += len(block)
                self.progress(label, done, total)

        self.writer.write(output, encode, lambda: self._metadata(packer.errors), overwrite)
        self.progress(label, total, total)

    def _compile(self, output: Path, overwrite: bool, threads: int) -> None:
        """Write the portable form, compile it for the targets, and write both into one file.

        The portable form stays: it holds the embedding and the tokenizer, and it is what the
        reference and emulators compute from.
        """
        with partial_folder(output.absolute().parent) as work:
            self._pack(work / "portable.satchel", False, threads)
            self._release_weights()
            program = Program(work / "portable.satchel")
            metadata = {**program.metadata, "payloads": {}}
            files: dict[str, Path] = {}
            for number, (name, compilation) in enumerate(self.compilations.items()):
                folder = work / f"payload{number}"
                folder.mkdir()
                compiled = compilation.compile(program, folder, self.progress)
                made = sorted(compiled.files.items())
                files |= {payload_name(name, file): path for file, path in made}
                metadata |= compiled.found
                metadata["payloads"][name] = dict(compiled.summary)
            portable = self.portable
            writer = ProgramWriter(
                self.kept_graphs, portable.encodings, portable.tokenizer, files, portable.text
            )
            writer.write(output, _copying(program), lambda: metadata, overwrite)

    def _release_weights(self) -> None:
        """From here on weights are those of the program. Those of a torch program are part of
        circles of references: they would go some time, and a compiler needs the memory now."""
        self.portable.checkpoint.close()
        gc.collect()
        return_memory()

    def _convert(self, output: Path, overwrite: bool, threads: int) -> Path:
        """Write what the target makes of the portable form."""
        (target,) = self.targets
        with partial_folder(output.absolute().parent) as work:
            portable, made = self.both_forms(work, threads)
            for suffix, path in made.items():
                place = _beside(output, suffix)
                if path.is_dir():
                    if place.exists():  # it goes with the folder of this work
                        os.rename(place, work / f"before{suffix}")
                    os.rename(path, place)
                else:
                    take_place(path, place, overwrite)
            target.after_export(Program(portable))
        return output

    def both_forms(self, folder: Path, threads: int = 0) -> tuple[Path, Mapping[str, Path]]:
        """The portable form, and the files that the only target makes of it: the same weights."""
        portable, made = folder / "portable.satchel", folder / "made"
        self._pack(portable, False, threads)
        self._release_weights()
        made.mkdir()
        (compilation,) = self.compilations.values()
        return portable, compilation.compile(Program(portable), made, self.progress).files

    def _metadata(self, errors: Errors) -> dict[str, Any]:
        names = [target.name for target in self.targets]
        described = replace(
            self.portable.describe(errors),
            target=names[0],
            targets=names if len(names) > 1 else [],
            placement=self.placement.to_dict(),
        )
        return described.to_dict()


def _check_alone(targets: Sequence[Target]) -> None:
    for target in targets:
        if target.writes != PROGRAM and len(targets) > 1:
            raise ConfigError(
                f"{target.name} writes a {target.writes.suffix} file, and others a .satchel",
                "Export a file for each.",
            )


def _beside(output: Path, suffix: str) -> Path:
    """One of the files that are written together."""
    return output.with_name(output.stem + suffix)


def _refuse_existing(output: Path, kind: FileKind, overwrite: bool) -> None:
    """As for files; a folder is replaced only if it is a package of this kind."""
    if kind.is_folder and output.suffix == kind.suffix and output.is_dir() and overwrite:
        return
    refuse_existing(output, overwrite)


def _joined(groups: Any) -> tuple[Graph, ...]:
    """All graphs, each name once: targets that divide a graph must do it alike to share a file."""
    found: dict[str, Graph] = {}
    for graphs in groups:
        for graph in graphs:
            known = found.setdefault(graph.name, graph)
            if known is not graph and repr(known.nodes) != repr(graph.nodes):
                raise GraphError(
                    f"two targets divide {graph.name} differently", "Export a file for each."
                )
    return tuple(found.values())


def _copying(program: Program) -> Callable[[Weight, Encoding], Iterator[bytes]]:
    """Gives each weight's bytes as another program has them."""
    places = {w["name"]: w for w in program.weights}

    def encode(weight: Weight, _: Encoding) -> Iterator[bytes]:
        info = places[weight.name]
        with program.path.open("rb") as file:
            for part in ("", "scales_"):
                left = info["codes_size" if not part else "scales_size"]
                file.seek(info[f"{part}offset"])
                while left:
                    block = file.read(min(left, _COPY_BLOCK))
                    left -= len(block)
                    yield block

    return encode
