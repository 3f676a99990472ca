"""Exports for an NPU: the program in its usual form, with what the chip's compiler makes of it.

The usual form stays in the file: it holds the embedding and the tokenizer, and it is what the
reference and the emulator compute from.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from satchel.backends.qnn.calibrate import Calibration
from satchel.backends.qnn.calibration_text import TEXT
from satchel.backends.qnn.chips import find_chip
from satchel.backends.qnn.compiler import NpuCompiler
from satchel.backends.qnn.feeds import TextFeeds
from satchel.backends.qnn.lowering import lower
from satchel.backends.qnn.payload import MANIFEST, named_files
from satchel.backends.qnn.rules import check_matrices, check_recipe
from satchel.backends.qnn.shards import choose_cuts, needed_shards, split
from satchel.backends.qnn.sizes import ShardEstimate, context_bytes, estimate, weight_bytes
from satchel.backends.qnn.vendor import require_packages
from satchel.errors import ConfigError
from satchel.graph.ir import Graph, Sym
from satchel.llm.session import ACCEPT_METHOD, KV_METHOD, LOOKAHEAD_METHOD
from satchel.program.writer import ProgramWriter
from satchel.runtime.program import Program
from satchel.sources.cache import partial_folder

if TYPE_CHECKING:
    from satchel.exporter.job import ExportJob

# Tokens of the calibration text: in all, in one text, and in one block of it.
CALIBRATION_TOKENS, _TEXT_TOKENS, CALIBRATION_BLOCK = 512, 256, 64
# Far below the chip's limit: compiling takes eleven times as much memory as a shard has weights.
USUAL_SHARD_BYTES = 600_000_000
_COPY_BLOCK = 8 << 20
PREFILL = "prefill_forward"
# What a program without a method for blocks is calibrated with; it is not kept.
CALIBRATION_METHOD = "calibrate_forward"


@dataclass(frozen=True)
class NpuPlan:
    """What compiling for the chip will take."""

    target: str
    shared: bool
    shards: tuple[ShardEstimate, ...]

    @property
    def binary_bytes(self) -> int:
        return sum(shard.binary_bytes for shard in self.shards)

    @property
    def peak_memory(self) -> int:
        return max(shard.peak_memory for shard in self.shards)

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


class NpuExport:
    """The part of an export that is the NPU's; what the chip cannot do is found out here."""

    def __init__(self, job: ExportJob) -> None:
        require_packages()
        self.job = job
        self.chip = find_chip(job.options.target)
        if job.adapters.apart:
            raise ConfigError(
                "a program for an NPU has no adapters that are kept apart", "Merge it with --lora."
            )
        self.bits = check_recipe(self.chip, job.recipe, job.encodings)
        self._all_graphs = list(job.graphs)
        job.graphs = [graph for graph in job.graphs if graph.name != CALIBRATION_METHOD]
        self.methods = {
            graph.name: _tokens(graph)
            for graph in job.graphs
            if graph.name not in _on_the_host(job.graphs)
        }
        self._sizes = {w.value.name: w.codes_size + w.scales_size for w in job.writer.weights}
        lowered = {
            graph.name: lower(graph, self.bits, _tokens(graph), job.context)
            for graph in self._all_graphs
            if graph.name not in _on_the_host(job.graphs)
        }
        # What the host does for the NPU is methods of the program, which the CPU runs.
        befores = {name: one.before for name, one in lowered.items() if one.before.nodes}
        self._all_graphs += befores.values()
        job.graphs += [graph for name, graph in befores.items() if name in self.methods]
        longest = max(self.methods, key=lambda name: self.methods[name])
        npu = lowered[longest].npu
        check_matrices(npu, job.encodings)
        size = weight_bytes(self._sizes)
        wanted = needed_shards(npu, size, USUAL_SHARD_BYTES)
        self.shards = job.options.num_sharding or wanted
        self.pieces = split(npu, choose_cuts(npu, size, self.shards))
        for number, piece in enumerate(self.pieces):
            taken = context_bytes(piece, size)
            if taken > self.chip.context_limit:
                raise ConfigError(
                    f"shard {number} takes {taken / 1e9:.1f} GB, and a context of "
                    f"{self.chip.name} holds {self.chip.context_limit / 1e9:.1f} GB",
                    f"Use --num-sharding {wanted} or more.",
                )

    @property
    def shared(self) -> bool:
        return self.chip.shares_weights and len(self.methods) > 1

    @property
    def methods_apart(self) -> bool:
        """Whether the chip makes each method have weights of its own."""
        return len(self.methods) > 1 and not self.shared

    def plan(self) -> NpuPlan:
        size = weight_bytes(self._sizes)
        copies = 1 if self.shared else len(self.methods)
        shards = tuple(estimate(piece, size, len(self.methods), copies) for piece in self.pieces)
        return NpuPlan(self.chip.target, self.shared, shards)

    def run(
        self, output: Path, overwrite: bool, write_base: Callable[[Path, ProgramWriter], object]
    ) -> Path:
        """Compile and write the program; ``write_base`` writes its usual form to a path."""
        job = self.job
        with partial_folder(output.absolute().parent) as work:
            base = work / "base.satchel"
            tokenizer = job.tokenizer.json.encode()
            write_base(base, ProgramWriter(self._all_graphs, job.encodings, tokenizer))
            program = Program(base)
            made = work / "npu"
            made.mkdir()
            compiler = NpuCompiler(
                program,
                self.chip,
                self.methods,
                Calibration(
                    self.bits, progress=lambda *done: job.progress("Measuring ranges", *done)
                ),
                self._feeds(),
                self.shards,
                job.progress,
            )
            files = compiler.compile(made)
            writer = ProgramWriter(job.graphs, job.encodings, tokenizer, named_files(files))
            write_compiled(program, writer, files, output, overwrite)
        return output

    def _feeds(self) -> TextFeeds:
        from satchel.eval.texts import leading_tokens
        from satchel.llm.tokenizer import Tokenizer

        job = self.job
        method = PREFILL if PREFILL in self.methods else CALIBRATION_METHOD
        length = min(_TEXT_TOKENS, job.context)
        block = min(CALIBRATION_BLOCK, length, self.methods.get(PREFILL, CALIBRATION_BLOCK))
        if job.rounding.text is not None:
            tokens = [token for window in job.rounding.text.windows for token in window]
            lead: list[int] = []
        else:
            tokenizer = Tokenizer(job.tokenizer)
            tokens = tokenizer.encode(TEXT, add_bos=False)
            lead = leading_tokens(tokenizer)
        tokens, step = tokens[:CALIBRATION_TOKENS], length - len(lead)
        texts = [
            np.array([*lead, *tokens[start : start + step]], np.int32)
            for start in range(0, len(tokens), step)
        ]
        whole = [text for text in texts if len(text) >= block]
        return TextFeeds(method, whole, block)


def _on_the_host(graphs: list[Graph]) -> set[str]:
    """Methods that are not compiled: moving what is kept of a tree, and, where there is a method
    for trees, the one for single tokens. A tree of one does that, so that plain decoding and
    guessing are the same computation."""
    names = {graph.name for graph in graphs}
    return {ACCEPT_METHOD} | ({KV_METHOD} if LOOKAHEAD_METHOD in names else set())


def _tokens(graph: Graph) -> int:
    length = graph.inputs[0].shape[0]
    return length.maximum if isinstance(length, Sym) else length


def write_compiled(
    program: Program,
    writer: ProgramWriter,
    files: Mapping[str, Path],
    output: Path,
    overwrite: bool,
    found: Mapping[str, Any] | None = None,
) -> None:
    """Write a program again, with what was compiled of it and ``found`` out about it."""
    metadata = {**program.metadata, **(found or {}), "npu": _summary(files)}
    writer.write(output, _copying(program), lambda: metadata, overwrite)


def _summary(files: Mapping[str, Path]) -> dict[str, Any]:
    """What the metadata say of the NPU's part; the rest is in its manifest."""
    document = json.loads(files[MANIFEST].read_text())
    kept = ("target", "vendor", "bits", "shared", "shards")
    tokens = {method["name"]: method["tokens"] for method in document["methods"]}
    return {**{key: document[key] for key in kept}, "methods": tokens}


def _copying(program: Program) -> Callable[[Any, Any], Iterator[bytes]]:
    """Gives each weight's bytes as another program has them."""
    places = {w["name"]: w for w in program.weights}

    def encode(weight: Any, _: Any) -> Iterator[bytes]:
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
