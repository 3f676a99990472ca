"""Compiles a program for the NPU, shard by shard, each in a process of its own."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from satchel.backends.qnn.annotate import annotate, is_cache
from satchel.backends.qnn.calibrate import Measured, measure_ranges
from satchel.backends.qnn.child import Child
from satchel.backends.qnn.chips import Chip
from satchel.backends.qnn.lower import lower
from satchel.backends.qnn.payload import MANIFEST, Manifest
from satchel.backends.qnn.prepared import PreparedProgram
from satchel.backends.qnn.runner import ShardedMethod
from satchel.backends.qnn.self_check import cosine, first_inputs, run_in_reference
from satchel.backends.qnn.shards import choose_cuts, cut_points, split
from satchel.backends.qnn.sizes import weight_bytes
from satchel.backends.qnn.vendor import vendor_version
from satchel.errors import BackendError
from satchel.runtime.program import Program

# Exact rounding would give 1. The chip's products of two activations are coarser, and in deep
# models that adds up; a compiler's mistake gives less than this in a single layer.
LEAST_AGREEMENT = 0.95

Tell = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Calibration:
    """A method of the program for blocks of tokens, and the texts that go through it."""

    method: str
    texts: Sequence[NDArray[Any]]
    tokens: int  # of a block


@dataclass
class NpuCompiler:
    """``compile`` turns a program into the files that the NPU needs."""

    program: Program
    chip: Chip
    methods: dict[str, int]  # the tokens of each call
    bits: int
    shards: int
    calibration: Calibration
    progress: Tell = lambda _what, _done, _total: None
    prepared: PreparedProgram = field(init=False)
    _passed: dict[str, NDArray[Any]] = field(init=False, default_factory=dict)
    _measured: Measured = field(init=False)

    def __post_init__(self) -> None:
        self.prepared = PreparedProgram(self.program, self.methods, self.bits)
        stored = self.program.weights
        size = weight_bytes({w["name"]: w["codes_size"] + w["scales_size"] for w in stored})
        longest = max(self.methods, key=lambda name: self.methods[name])
        graph = self.prepared.lowered[longest].npu
        self.prepared.cuts = choose_cuts(graph, size, self.shards)

    def compile(self, folder: Path) -> dict[str, Path]:
        """The files by name, ready to be put into a program."""
        self._calibrate()
        manifest = Manifest(
            self.chip.target,
            vendor_version(),
            self.bits,
            self.methods,
            self.prepared.cuts,
            self.chip.shares_weights and len(self.methods) > 1,
            self.prepared.encodings,
        )
        for shard in range(self.shards):
            self.progress("Compiling shards", shard, self.shards)
            manifest.shards.append(self._compile_shard(shard, folder, manifest))
        self.progress("Compiling shards", self.shards, self.shards)
        (folder / MANIFEST).write_text(manifest.to_json())
        return {path.name: path for path in folder.iterdir()}

    def _calibrate(self) -> None:
        given = self.calibration
        longest = max((len(text) for text in given.texts), default=1)
        prepared = self.prepared
        lowered = lower(prepared.graphs[given.method], max(longest, 1), given.tokens)
        # In the smallest pieces: the weights of one at a time are in memory, as floats.
        method = ShardedMethod(lowered, split(lowered.npu, cut_points(lowered.npu)))
        self._measured = measure_ranges(
            method,
            prepared.host,
            prepared.weights,
            given.texts,
            self.bits,
            lambda done, total: self.progress("Measuring ranges", done, total),
        )
        prepared.encodings = annotate(lowered.npu, self._measured.ranges, self.bits)

    def _compile_shard(self, shard: int, folder: Path, manifest: Manifest) -> dict[str, Any]:
        started = time.perf_counter()
        before = {path.name for path in folder.iterdir()}
        # The longest method first: the binary is written with the last.
        order = sorted(self.methods, key=lambda name: -self.methods[name])
        with tempfile.TemporaryDirectory(dir=folder.parent) as work, Child() as child:
            sources = self.prepared.write_models(shard, Path(work))
            models = [
                (name, sources[name], folder / manifest.model_file(shard, name)) for name in order
            ]
            answer = child.compile(models, self.chip.target, manifest.shared)
            agreement = self._check(shard, child)
        files = sorted(path.name for path in folder.iterdir() if path.name not in before)
        binaries = [folder / name for name in files if name.endswith(".bin")]
        return {
            "files": files,
            "binary_bytes": sum(path.stat().st_size for path in binaries),
            "seconds": round(time.perf_counter() - started, 2),
            "processor_seconds": round(answer["processor_s"], 2),
            "peak_memory_bytes": answer["peak_bytes"],
            "agreement": round(agreement, 6),
        }

    def _check(self, shard: int, child: Child) -> float:
        """Run the shortest method of a shard once, where it was compiled, and in the reference.

        Compilers for some chips have been wrong without a word. Returns the cosine between both.
        """
        name = min(self.methods, key=lambda name: self.methods[name])
        method = self.prepared.methods[name]
        if shard == 0:
            self._passed = first_inputs(self.prepared, method.lowered, self._measured)
        piece = method.pieces[shard]
        codes = {v.name: self._passed[v.name] for v in piece.inputs}
        expected = run_in_reference(self.prepared, piece, codes)
        got = child.run(name, codes)
        # What goes on from here: hidden states, or logits.
        passed = next(v.name for v in piece.outputs if not is_cache(v.name))
        encoding = self.prepared.encodings[passed]
        agreement = cosine(*(encoding.dequantize(made[passed]) for made in (got, expected)))
        self._passed |= expected
        if agreement < LEAST_AGREEMENT:
            raise BackendError(
                f"shard {shard} as compiled for {self.chip.name} computes something else than the "
                f"reference: the cosine between both is {agreement:.3f}",
                "Nothing was written. Another --recipe or --num-sharding may compile well; please "
                "report the model and the chip.",
            )
        return agreement
