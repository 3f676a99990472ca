"""Exports of models that hear for an NPU: encoder and decoder as two graphs."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from satchel.backends.qnn.calibrate import Calibration
from satchel.backends.qnn.chips import Chip
from satchel.backends.qnn.compiler import NpuCompiler
from satchel.backends.qnn.export import NpuPlan, summary
from satchel.backends.qnn.halves import FLOATS
from satchel.backends.qnn.lowering import lower
from satchel.backends.qnn.rules import cache_bits, check_matrices, check_recipe, layer_bits
from satchel.backends.qnn.settings import Settings
from satchel.backends.qnn.sizes import (
    compile_memory,
    context_bytes,
    estimate,
    reference_memory,
    weight_bytes,
)
from satchel.backends.qnn.speech_feeds import speech_feeds
from satchel.backends.qnn.vendor import require_packages
from satchel.backends.target import Compiled, CompilePlan, Draft
from satchel.errors import ConfigError, RecipeError
from satchel.graph.ir import largest
from satchel.runtime.program import Program
from satchel.sources.progress import Progress
from satchel.speech.whisper import DECODE, ENCODE

METHODS = {ENCODE: 0, DECODE: 1}  # the tokens of a call


class NpuSpeech:
    """A model that hears, as far as the NPU runs it; what the chip cannot do is found out here."""

    notes: tuple[str, ...] = ()

    def __init__(self, draft: Draft, chip: Chip, settings: Settings) -> None:
        require_packages()
        self.draft, self.chip, self.settings = draft, chip, settings
        self.bits = check_recipe(chip, draft.recipe, dict(draft.encodings))
        self.cache_bits = cache_bits(draft.recipe)
        graphs = {graph.name: graph for graph in draft.graphs}
        weights = [weight for name in METHODS for weight in graphs[name].weights()]
        self.layer_bits = layer_bits(draft.recipe, weights)
        lowered = [
            lower(graphs[name], self.bits, tokens, draft.context)
            for name, tokens in METHODS.items()
        ]
        self.graphs = tuple(one.before for one in lowered if one.before.nodes)
        self._pieces = [one.npu for one in lowered]
        for piece in self._pieces:
            check_matrices(piece, dict(draft.encodings), self.bits)
            taken = context_bytes(piece, weight_bytes(draft.weight_bytes), self.cache_bits)
            if taken > chip.context_limit:
                raise ConfigError(
                    f"{piece.name} takes {taken / 1e9:.1f} GB, and a context of {chip.name} "
                    f"holds {chip.context_limit / 1e9:.1f} GB",
                    "Export a smaller model, or this one for cpu.",
                )
        if self.bits != FLOATS and not draft.samples.spoken:
            raise RecipeError(
                f"the ranges of {draft.recipe_name} are measured on recordings",
                "Give a folder of them with their transcripts (--calibrate FOLDER), or use "
                "--recipe fp16.",
            )
        self._window = largest(graphs[ENCODE].inputs[0].shape)

    def plan(self) -> CompilePlan:
        size = weight_bytes(self.draft.weight_bytes)
        memory = compile_memory(self.draft.weight_bytes, self.draft.encodings, 1)
        parts = tuple(
            estimate(piece, size, 1, 1, self.cache_bits, memory) for piece in self._pieces
        )
        checking = max(reference_memory(piece) for piece in self._pieces)
        # One process compiles both, and keeps them to try them out.
        return NpuPlan(self.chip.target, False, parts, checking, jobs=len(parts)).told()

    def compile(self, program: Program, folder: Path, progress: Progress) -> Compiled:
        frames, mels = self._window
        spoken, vocab_size = self.draft.samples.spoken, int(self.draft.about["vocab_size"])
        compiler = NpuCompiler(
            program,
            self.chip,
            dict(METHODS),
            Calibration(
                self.bits,
                progress=partial(progress, "Measuring ranges, steps"),
                cache_bits=self.cache_bits,
                layer_bits=self.layer_bits,
            ),
            speech_feeds(spoken, vocab_size, (frames, mels)),
            progress=progress,
            settings=self.settings,
            shares=False,  # the decoder has no weights of the encoder's
        )
        files = compiler.compile(folder)
        return Compiled(files, summary(files))
