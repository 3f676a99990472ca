"""Exports for an NPU: what is checked and planned, and then compiled."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from satchel.backends.qnn.calibrate import Calibration
from satchel.backends.qnn.chips import Chip
from satchel.backends.qnn.compiler import NpuCompiler
from satchel.backends.qnn.feeds import ExampleFeeds, TextFeeds, made_up_examples
from satchel.backends.qnn.halves import FLOATS
from satchel.backends.qnn.lowering import lower
from satchel.backends.qnn.payload import MANIFEST
from satchel.backends.qnn.place import METHOD, NPU
from satchel.backends.qnn.rules import (
    HALF,
    cache_bits,
    check_floats,
    check_matrices,
    check_recipe,
    layer_bits,
)
from satchel.backends.qnn.settings import Settings
from satchel.backends.qnn.shards import choose_cuts, needed_shards, split
from satchel.backends.qnn.sizes import (
    MEMORY_BASE,
    ShardEstimate,
    compile_memory,
    context_bytes,
    estimate,
    estimate_module,
    largest_layer,
    measuring_memory,
    reference_memory,
    released_memory,
    weight_bytes,
)
from satchel.backends.qnn.vendor import require_packages
from satchel.backends.target import Compiled, CompilePlan, Draft
from satchel.calibration.built_in import TEXT
from satchel.errors import ConfigError, RecipeError
from satchel.graph.ir import Graph, Sym
from satchel.program.names import (
    ACCEPT_METHOD,
    CALIBRATION_METHOD,
    KV_METHOD,
    LOOKAHEAD_METHOD,
    PREFILL_METHOD,
)
from satchel.runtime.program import Program
from satchel.sources.progress import Progress
from satchel.units import megabytes

# Tokens of the calibration text: in all, in one text, and in one block of it.
CALIBRATION_TOKENS, _TEXT_TOKENS, CALIBRATION_BLOCK = 512, 256, 64
# What a compiler's process may take, so that 3 GB do for all. A shard is far below the chip's limit
# then: compiling takes eleven times the memory of weights of 4 bits.
COMPILE_MEMORY = 2_700_000_000
# The bits of activations; weights have 8, or are floats.
MODULE_RECIPES = {"int8": 8, "16a8w": 16, "fp16": FLOATS}


@dataclass(frozen=True)
class NpuPlan:
    """What compiling for the chip will take."""

    target: str
    shared: bool
    shards: tuple[ShardEstimate, ...]
    checking: int = 0  # what the reference takes, before the compiler starts
    jobs: int = 1  # shards that are compiled at the same time
    freed: int = 0  # what the process gives back before the compiler starts

    @property
    def binary_bytes(self) -> int:
        return sum(shard.binary_bytes for shard in self.shards)

    @property
    def peak_memory(self) -> int:
        largest = sorted((shard.peak_memory for shard in self.shards), reverse=True)
        return max(self.checking, sum(largest[: self.jobs]) - self.freed)

    @property
    def seconds(self) -> float:
        return sum(shard.seconds for shard in self.shards)

    def to_dict(self) -> dict[str, Any]:
        return {
            "target": self.target,
            "shared_weights": self.shared,
            "binary_bytes": self.binary_bytes,
            "compile_seconds": round(self.seconds, 1),
            "compile_memory_bytes": self.peak_memory,
            "shards": [shard.to_dict() for shard in self.shards],
        }

    def told(self) -> CompilePlan:
        return CompilePlan(self.binary_bytes, self.peak_memory, self.to_dict(), self._lines())

    def _lines(self) -> tuple[str, ...]:
        """For ``satchel export --plan``."""
        count = len(self.shards)
        shared = "weights shared by all methods" if self.shared else "weights once for each method"
        shards = (
            f"  shard {number:<4} {megabytes(shard.binary_bytes)} of binary, "
            f"{megabytes(shard.context_bytes)} on the chip; compiling takes about "
            f"{shard.seconds:.0f} s and {megabytes(shard.peak_memory)}"
            for number, shard in enumerate(self.shards)
        )
        return (
            f"NPU          {count} shard{'s' if count > 1 else ''} for {self.target}, {shared}",
            *shards,
        )


class NpuLanguageModel:
    """A language model's part that is the NPU's; what the chip cannot do is found out here."""

    def __init__(
        self,
        draft: Draft,
        chip: Chip,
        num_sharding: int | None,
        settings: Settings | None = None,
        guess_in_blocks: bool = False,
        jobs: int = 1,
    ) -> None:
        require_packages()
        self.draft, self.chip, self.settings = draft, chip, settings or Settings()
        if draft.adapters:
            raise ConfigError(
                "a program for an NPU has no adapters that are kept apart", "Merge it with --lora."
            )
        self.bits = check_recipe(chip, draft.recipe, dict(draft.encodings))
        self.cache_bits = cache_bits(draft.recipe)
        weights = [weight for graph in draft.graphs for weight in graph.weights()]
        self.layer_bits = layer_bits(draft.recipe, weights)
        compiled = [g for g in draft.graphs if g.name not in _on_the_host(draft.graphs)]
        self.methods = {g.name: _tokens(g) for g in compiled if g.name != CALIBRATION_METHOD}
        room = COMPILE_MEMORY - MEMORY_BASE
        # Who chooses fewer shards also has larger ones.
        chosen = 2 * sum(draft.weight_bytes.values()) // num_sharding if num_sharding else 0
        self.row_parts = _split_layers(compiled[0], draft, room, chosen)
        lowered = {
            g.name: lower(g, self.bits, _tokens(g), draft.context, row_parts=self.row_parts)
            for g in compiled
        }
        # What the host does for the NPU is methods of the program, which the CPU runs.
        self.graphs = tuple(one.before for one in lowered.values() if one.before.nodes)
        longest = max(self.methods, key=lambda name: self.methods[name])
        npu = lowered[longest].npu
        self._heads = check_matrices(npu, dict(draft.encodings), self.bits, draft.recipe.keeps)
        if self.bits == FLOATS and LOOKAHEAD_METHOD in self.methods:
            raise ConfigError(
                "guessing ahead needs whole numbers on the NPU: sums of floats have an order, so "
                "that a token would have other bits in a tree than alone",
                "Use --mode hybrid with fp16, or --recipe 16a4w or 16a8w.",
            )
        size = weight_bytes(draft.weight_bytes)
        self._memory = compile_memory(draft.weight_bytes, draft.encodings, len(self.methods))
        wanted = needed_shards(npu, self._memory, room)
        self.cuts = choose_cuts(npu, self._memory, num_sharding or wanted)
        self.pieces = split(npu, self.cuts)
        for number, piece in enumerate(self.pieces):
            taken = context_bytes(piece, size, self.cache_bits)
            if taken > chip.context_limit:
                raise ConfigError(
                    f"shard {number} takes {taken / 1e9:.1f} GB, and a context of "
                    f"{chip.name} holds {chip.context_limit / 1e9:.1f} GB",
                    f"Use --num-sharding {wanted} or more.",
                )
        if guess_in_blocks and ({*self.methods} != {KV_METHOD, PREFILL_METHOD} or not self.bits):
            raise ConfigError(
                "guessing in blocks is for programs of --mode hybrid that compute in whole numbers",
                "Leave --guess-in-blocks out; --mode lookahead always guesses.",
            )
        self._guess_in_blocks, self._jobs = guess_in_blocks, jobs
        self._texts = self._feeds()

    @property
    def shared(self) -> bool:
        return self.chip.shares_weights and len(self.methods) > 1

    @property
    def notes(self) -> tuple[str, ...]:
        said = [f"{name} has floats in the checkpoint, and 8 bits here." for name in self._heads]
        if len(self.methods) > 1 and not self.shared:
            said.append(
                f"{self.chip.name} does not share weights between methods (v73 and newer do), so "
                "each method has a binary of its own."
            )
        return tuple(said)

    def plan(self) -> CompilePlan:
        size = weight_bytes(self.draft.weight_bytes)
        copies = 1 if self.shared else len(self.methods)
        shards = tuple(
            estimate(piece, size, len(self.methods), copies, self.cache_bits, self._memory)
            for piece in self.pieces
        )
        checking = max(reference_memory(piece) for piece in self.pieces)
        return NpuPlan(self.chip.target, self.shared, shards, checking, jobs=self._jobs).told()

    def compile(self, program: Program, folder: Path, progress: Progress) -> Compiled:
        told = partial(progress, "Measuring ranges, steps")
        compiler = NpuCompiler(
            program,
            self.chip,
            self.methods,
            Calibration(
                self.bits, progress=told, cache_bits=self.cache_bits, layer_bits=self.layer_bits
            ),
            [self._texts],
            self.cuts,
            self.row_parts,
            progress,
            self.settings,
            self._guess_in_blocks,
            self._jobs,
        )
        files = compiler.compile(folder)
        return Compiled(files, summary(files))

    def _feeds(self) -> TextFeeds:
        from satchel.eval.texts import leading_tokens
        from satchel.llm.tokenizer import Tokenizer

        samples = self.draft.samples
        method = PREFILL_METHOD if PREFILL_METHOD in self.methods else CALIBRATION_METHOD
        length = min(_TEXT_TOKENS, self.draft.context)
        most = self.methods.get(PREFILL_METHOD, CALIBRATION_BLOCK)
        block = min(CALIBRATION_BLOCK, length, most)
        lead: list[int] = []
        if samples.tokens is not None:
            tokens = list(samples.tokens)
        else:
            assert samples.tokenizer is not None
            tokenizer = Tokenizer(samples.tokenizer)
            tokens = tokenizer.encode(TEXT, add_bos=False)
            lead = leading_tokens(tokenizer)
        tokens, step = tokens[:CALIBRATION_TOKENS], length - len(lead)
        texts = [[*lead, *tokens[start : start + step]] for start in range(0, len(tokens), step)]
        if samples.texts:  # chosen one by one: all of them, whatever it takes
            texts = [list(text[: self.draft.context]) for text in samples.texts]
            tokens = [token for text in texts for token in text]
        whole = [text for text in texts if len(text) >= block]
        if not whole:  # a prompt of a few words: again and again, until it fills a block
            if not tokens:
                raise RecipeError("the calibration text has no tokens", "Give a longer text.")
            whole = [([*lead, *tokens] * block)[:block]]
        return TextFeeds(method, [np.array(text, np.int32) for text in whole], block)


class NpuModule:
    """A module's part that is the NPU's."""

    notes: tuple[str, ...] = ()
    graphs: tuple[Graph, ...] = ()

    def __init__(self, draft: Draft, chip: Chip, settings: Settings | None = None) -> None:
        self.draft, self.chip, self.settings = draft, chip, settings or Settings()
        self.bits = MODULE_RECIPES[draft.recipe_name]
        placed = (graph for graph in draft.graphs if graph.name == NPU)
        self.npu = next(placed, draft.graphs[0])
        lower(self.npu, self.bits, fuse_bias=True)  # what cannot be lowered is told at once

    def plan(self) -> CompilePlan:
        # Weights are stored in 16 bits, and the NPU's have 8, or are the same.
        share = 1 if self.bits == FLOATS else 2
        sizes = {name: size // share for name, size in self.draft.weight_bytes.items()}
        shard = estimate_module(self.npu, weight_bytes(sizes))
        floats = 2 * sum(self.draft.weight_bytes.values())  # the module's own, until it is packed
        checking = measuring_memory(self.npu, floats)
        freed = released_memory(floats)
        return NpuPlan(self.chip.target, False, (shard,), checking, freed=freed).told()

    def compile(self, program: Program, folder: Path, progress: Progress) -> Compiled:
        samples = self.draft.samples
        compiler = NpuCompiler(
            program,
            self.chip,
            {METHOD: 0},
            Calibration(self.bits, samples.observer, samples.least_snr),
            [ExampleFeeds(METHOD, samples.examples or made_up_examples(self.draft.graphs[0]))],
            progress=progress,
            settings=self.settings,
        )
        files = compiler.compile(folder)
        calibrated = compiler.calibrated
        found = {"layer_snr_db": calibrated.noise, "in_16_bits": calibrated.wide}
        return Compiled(files, summary(files), found)


def check_module(chip: Chip, recipe: str, has_overrides: bool) -> None:
    """Refuse at once what no NPU can do."""
    if recipe not in MODULE_RECIPES:
        raise RecipeError(
            f"an NPU does not run a module as {recipe}",
            "Use --recipe int8, or 16a8w or fp16 where 8 bits cost too much.",
        )
    if recipe == HALF:
        check_floats(chip)
    if has_overrides:
        raise RecipeError(
            "on the NPU all layers of a module have one recipe",
            "Leave --override out; 16a8w gives all activations 16 bits.",
        )
    require_packages()


def report_lines(summary: Mapping[str, Any], in_16_bits: Sequence[str]) -> list[str]:
    """What ``satchel export`` says of a module, or of a model that hears, for an NPU."""
    (shard,) = summary["shards"]
    lines = [
        f"{megabytes(shard['binary_bytes'])} of binary for {summary['target']}, compiled in "
        f"{shard['seconds']:.0f} s with {megabytes(shard['peak_memory_bytes'])}",
        f"an example has the cosine {shard['agreement']:.4f} with the reference's rounded run, and "
        f"that has {shard['rounding']:.4f} with the float model",
    ]
    if in_16_bits:
        lines.append(f"in 16 bits, because 8 would cost too much: {', '.join(in_16_bits)}")
    return lines


def _on_the_host(graphs: Sequence[Graph]) -> set[str]:
    """Methods that are not compiled: moving what is kept of a tree, and, where there is a method
    for trees, the one for single tokens. A tree of one does that, so that plain decoding and
    guessing are the same computation."""
    names = {graph.name for graph in graphs}
    return {ACCEPT_METHOD} | ({KV_METHOD} if LOOKAHEAD_METHOD in names else set())


def _split_layers(graph: Graph, draft: Draft, memory: int, least: int) -> dict[str, int]:
    """Layers that would take more memory to compile, and into how many parts they go; those of up
    to ``least`` bytes stay whole."""
    weights = [n.inputs[1].weight for n in graph.nodes if n.op == "linear" and n.inputs[1]]
    parts = {}
    for name in (weight.name for weight in weights if weight):
        limit = max(least, largest_layer(draft.encodings[name], memory))
        if draft.weight_bytes.get(name, 0) > limit:
            parts[name] = -(-draft.weight_bytes[name] // limit)
    return parts


def _tokens(graph: Graph) -> int:
    length = graph.inputs[0].shape[0]
    return length.maximum if isinstance(length, Sym) else length


def summary(files: Mapping[str, Path]) -> dict[str, Any]:
    """What the metadata say of the NPU's part; the rest is in its manifest."""
    document = json.loads(files[MANIFEST].read_text())
    kept = ("target", "vendor", "bits", "shared", "settings", "shards")
    tokens = {method["name"]: method["tokens"] for method in document["methods"]}
    return {**{key: document[key] for key in kept}, "methods": tokens}
