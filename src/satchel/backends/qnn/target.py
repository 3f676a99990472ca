"""The Hexagon NPU of Qualcomm's chips as a target."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from satchel.backends.base import BaseTarget
from satchel.backends.qnn.chips import Chip, find_chip, usual_recipe
from satchel.backends.qnn.settings import DOMAINS, PERFORMANCE, PRIORITIES, Settings
from satchel.backends.target import (
    BackendGroup,
    Compilation,
    Defaults,
    Draft,
    Extra,
    LanguageModelRequest,
    MethodWish,
    ModuleGraph,
    Placement,
)
from satchel.errors import ConfigError
from satchel.graph.ir import Graph, Node, Sym
from satchel.options import POSITIVE, SWITCH, option
from satchel.program.about import AboutModule, AboutSpeech
from satchel.program.names import (
    CALIBRATION_METHOD,
    KV_METHOD,
    LOOKAHEAD_METHOD,
    PREFILL_METHOD,
)

if TYPE_CHECKING:
    from satchel.graph.passes import Pass
    from satchel.runtime.program import Instance, Program
    from satchel.sources.progress import Progress


@dataclass(frozen=True)
class QnnTarget(BaseTarget):
    """A chip by its name or its version: ``qnn:SM8750``, ``qnn:v79``."""

    chip: Chip
    num_sharding: int | None = option(
        None,
        "into how many parts to split the model (as many as the chip needs)",
        POSITIVE,
        metavar="N",
    )
    kit: str | None = option(
        None,
        "also write what a runner or an app of your own needs: for a phone's NPU binaries and a "
        "script, for Core ML a Swift package",
        metavar="FOLDER",
    )

    performance: str = option(
        "burst",
        "the clocks' mode on the chip: burst, balanced, power_saver, … (burst)",
        choices=PERFORMANCE,
    )
    vtcm_mb: int | None = option(
        None,
        "megabytes of the NPU's fast memory to compile for (all that the chip has)",
        POSITIVE,
        metavar="N",
    )
    priority: str = option(
        "normal", "of the NPU's work beside that of other programs (normal)", choices=PRIORITIES
    )
    process_domain: str = option(
        "unsigned",
        "the NPU's session of a runner of your own (--kit): signed needs libraries that the "
        "device's maker signed (unsigned)",
        choices=DOMAINS,
    )
    hvx_threads: int | None = option(
        None,
        "the NPU's vector threads that a runner of your own (--kit) may use (as many as it likes)",
        POSITIVE,
        metavar="N",
    )

    compile_jobs: int = option(
        1,
        "how many shards to compile at the same time, each with the memory that --plan tells (1)",
        POSITIVE,
        metavar="N",
    )
    guess_in_blocks: bool = option(
        False,
        "with --mode hybrid: try whether a token has the same bits in a block as alone, and if so "
        "let answers be guessed ahead in blocks (takes longer to export)",
        SWITCH,
    )

    counts_cycles = True
    hears = True
    family = "qnn"
    backend_group = BackendGroup(
        "qnn",
        chip="soc_model",
        usual_chip="SM8650",
        options={"num_sharding": "num_sharding"},
        switches={"optimized_rotation_path": "rotate"},  # made here, without a file
        not_needed=("use_sha", "use_qnn_sha"),
        precisions={"qnn_8a8w": {"recipe": "8a8w"}, "qnn_16a4w": {"recipe": "16a4w"}},
    )
    form = "qnn:CHIP, for example qnn:SM8750, or by its version qnn:v79"
    extra = Extra("qnn", "onnxruntime_qnn", "satchel export --target qnn:CHIP")

    @classmethod
    def parse(cls, chip: str, options: Mapping[str, Any]) -> QnnTarget:
        return cls(find_chip(f"{cls.family}:{chip}"), **options)

    def __post_init__(self) -> None:
        self.settings  # noqa: B018  (they are possible)

    @property
    def name(self) -> str:
        return self.chip.target

    @property
    def settings(self) -> Settings:
        return Settings(
            self.performance,
            self.vtcm_mb,
            self.priority,
            self.process_domain,
            self.hvx_threads,
        )

    def choices(self) -> Iterator[str]:
        if self.num_sharding is not None:
            yield f"s{self.num_sharding}"
        if self.vtcm_mb is not None:
            yield f"vtcm{self.vtcm_mb}"
        if self.performance != Settings().performance:
            yield self.performance
        if self.process_domain != Settings().process_domain:
            yield self.process_domain
        if self.hvx_threads is not None:
            yield f"hvx{self.hvx_threads}"
        if self.guess_in_blocks:
            yield "guesses"

    @property
    def usual(self) -> Defaults:
        # The compiler takes longer the larger its graphs are.
        recipe = usual_recipe(self.chip)
        speech = "fp16" if self.chip.has_floats else "16a8w"  # floats need no recordings
        return Defaults(
            recipe, "int8", prefill_ar_len=128, kv_bits=8, context=2048, speech_recipe=speech
        )

    def methods(self, asked: LanguageModelRequest) -> list[MethodWish]:
        from satchel.backends.qnn.export import CALIBRATION_BLOCK

        wanted = [MethodWish(KV_METHOD, 1)]
        if asked.mode == "kv":
            block = Sym("S", min(CALIBRATION_BLOCK, asked.context))
            wanted.append(MethodWish(CALIBRATION_METHOD, block, temporary=True))
        else:
            rows = Sym("S", min(asked.prefill_tokens, asked.context))
            wanted.append(MethodWish(PREFILL_METHOD, rows))
        if asked.lookahead_rows:  # its blocks have all one length
            tree = Sym("S", min(asked.lookahead_rows, asked.context))
            wanted.append(MethodWish(LOOKAHEAD_METHOD, tree))
        return wanted

    def check_module(self, recipe: str, has_overrides: bool) -> None:
        from satchel.backends.qnn.export import check_module

        check_module(self.chip, recipe, has_overrides)

    def needs_examples(self, recipe: str) -> bool:
        from satchel.backends.qnn.rules import HALF

        return recipe != HALF  # floats have no ranges

    def module_recipe(self, recipe: str) -> str:
        return "fp16"  # of which the NPU's codes are made

    @property
    def module_passes(self) -> tuple[Pass, ...]:
        from satchel.graph.passes import WRITTEN_OUT

        return WRITTEN_OUT

    def finish_module(self, module: ModuleGraph, progress: Progress) -> ModuleGraph:
        return module  # ranges are measured when it is compiled

    def supports(self, node: Node) -> str | None:
        from satchel.backends.qnn.ops import supports

        return supports(node)

    def place(self, graphs: Sequence[Graph]) -> Placement:
        from satchel.backends.qnn.place import METHOD, place_module, place_program, place_speech
        from satchel.speech.whisper import ENCODE

        if len(graphs) == 1 and graphs[0].name == METHOD:
            placed = place_module(graphs[0])
            divided, report = placed.graphs, placed.report
        elif any(graph.name == ENCODE for graph in graphs):
            divided, report = list(graphs), place_speech(graphs)
        else:
            divided, report = list(graphs), place_program(graphs)
        return Placement(tuple(divided), report["nodes"], tuple(report["fallbacks"]))

    def prepare(self, draft: Draft) -> Compilation:
        from satchel.backends.qnn.export import NpuLanguageModel, NpuModule

        if draft.is_language_model:
            jobs = self.compile_jobs
            chosen = self.num_sharding, self.settings, self.guess_in_blocks, jobs
            return NpuLanguageModel(draft, self.chip, *chosen)
        if draft.about.get("kind") == AboutSpeech.kind:
            return self._prepare_speech(draft)
        return NpuModule(draft, self.chip, self.settings)

    def _prepare_speech(self, draft: Draft) -> Compilation:
        from satchel.backends.qnn.speech_export import NpuSpeech

        for name in ("num_sharding", "kit", "guess_in_blocks"):
            if getattr(self, name):
                raise ConfigError(
                    f"{name} is for language models, and Whisper is not one", "Leave it out."
                )
        return NpuSpeech(draft, self.chip, self.settings)

    def after_export(self, program: Program) -> None:
        from satchel.backends.qnn.kit import write_kit

        if self.kit:
            write_kit(program, Path(self.kit))

    def report(self, program: Program) -> list[str]:
        from satchel.backends.qnn.export import report_lines

        about = program.about
        if not isinstance(about, (AboutModule, AboutSpeech)):
            return []
        wide = about.in_16_bits if isinstance(about, AboutModule) else []
        return report_lines(about.payloads[self.name], wide)

    def open(self, program: Program, threads: int = 0) -> Instance:
        from satchel.backends.qnn.instance import NpuInstance
        from satchel.backends.qnn.speech_instance import NpuSpeechInstance

        if isinstance(program.about, AboutSpeech):
            return NpuSpeechInstance(program, threads)
        return NpuInstance(program)

    def open_reference(self, program: Program) -> Instance:
        from satchel.backends.qnn.instance import ReferenceNpuInstance
        from satchel.backends.qnn.speech_instance import ReferenceNpuSpeechInstance

        if isinstance(program.about, AboutSpeech):
            return ReferenceNpuSpeechInstance(program)
        return ReferenceNpuInstance(program)
