"""Compiles a program for the NPU, shard by shard, each in a process of its own."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.backends.qnn.annotate import is_cache
from satchel.backends.qnn.binary_info import differences
from satchel.backends.qnn.calibrate import Calibrated, Calibration
from satchel.backends.qnn.child import Child
from satchel.backends.qnn.chips import Chip
from satchel.backends.qnn.feeds import Feeds, Probe
from satchel.backends.qnn.halves import FLOATS
from satchel.backends.qnn.manifest import Manifest
from satchel.backends.qnn.payload import MANIFEST
from satchel.backends.qnn.prepared import PreparedProgram
from satchel.backends.qnn.reference_run import ReferenceGraph
from satchel.backends.qnn.runner import mask_codes
from satchel.backends.qnn.settings import Settings
from satchel.backends.qnn.shards import cut_points, split
from satchel.backends.qnn.vendor import compiled_graph, vendor_version
from satchel.errors import BackendError, ConfigError
from satchel.graph.ir import Graph
from satchel.machine import note_children, return_memory, small_pages
from satchel.runtime.program import Program

# Exact rounding would give 1. The chip's products of two activations are coarser, and in deep
# models that adds up; a compiler's mistake gives less than this in a single layer.
LEAST_AGREEMENT = 0.95

Array = NDArray[Any]
Tell = Callable[[str, int, int], None]


@dataclass
class NpuCompiler:
    """``compile`` turns a program into the files that the NPU needs."""

    program: Program
    chip: Chip
    methods: dict[str, int]  # the tokens of each call
    calibration: Calibration
    feeds: Sequence[Feeds]  # one for each graph that is measured and tried out
    cuts: Sequence[int] = ()
    row_parts: Mapping[str, int] = field(default_factory=dict)
    progress: Tell = lambda _what, _done, _total: None
    settings: Settings = field(default_factory=Settings)
    tries_blocks: bool = False  # whether a token is also tried in a block of the longest method
    jobs: int = 1  # shards that are compiled at the same time
    shares: bool = True  # whether methods have weights in common
    prepared: PreparedProgram = field(init=False)
    calibrated: Calibrated = field(init=False)
    _probes: list[Probe] = field(init=False)

    def __post_init__(self) -> None:
        self.prepared = PreparedProgram(
            self.program, self.methods, self.calibration.bits, self.row_parts
        )
        self.prepared.cuts = list(self.cuts)

    def compile(self, folder: Path) -> dict[str, Path]:
        """The files by name, ready to be put into a program."""
        with small_pages():  # little is read twice, and the compiler needs the memory
            return self._compile(folder)

    def _compile(self, folder: Path) -> dict[str, Path]:
        prepared = self.prepared
        self.progress("Measuring ranges, steps", 0, 1)
        self.calibrated = self._calibrate()
        prepared.use(self.calibrated.encodings)
        self.progress("Measuring ranges, steps", 1, 1)
        self._probes = [one.probe(prepared, self.calibrated) for one in self.feeds]
        manifest = Manifest(
            self.chip.target,
            vendor_version(),
            self.calibration.bits,
            self.shares and self.chip.shares_weights and len(self.methods) > 1,
            prepared.methods,
            prepared.cuts,
            prepared.row_parts,
            self.calibrated.encodings,
            settings=self.settings,
        )
        count = len(prepared.cuts) + 1
        # Before the compilers need the memory.
        expected = [self._expected(number) for number in range(count)]
        return_memory()
        self.progress("Compiling, shards", 0, count)
        with ThreadPoolExecutor(self.jobs) as pool:
            made = pool.map(
                lambda number: self._compile_shard(number, folder, manifest, expected[number]),
                range(count),
            )
            for shard in made:
                manifest.shards.append(shard)
                self.progress("Compiling, shards", len(manifest.shards), count)
        peaks = sorted((shard["peak_memory_bytes"] for shard in manifest.shards), reverse=True)
        note_children(sum(peaks[: self.jobs]))
        manifest.same_bits = self.tries_blocks and all(s["same_bits"] for s in manifest.shards)
        (folder / MANIFEST).write_text(manifest.to_json())
        return {path.name: path for path in folder.iterdir()}

    def _calibrate(self) -> Calibrated:
        found: Calibrated | None = None
        for feeds in self.feeds:
            lowered, pieces = feeds.lowered(self.prepared)
            given = feeds.feeds(self.prepared, lowered)
            found = self.calibration.run(lowered, pieces, given, self.prepared.weights, found)
        assert found is not None
        return found

    def _compile_shard(
        self, number: int, folder: Path, manifest: Manifest, expected: Sequence[Mapping[str, Array]]
    ) -> dict[str, Any]:
        started = time.perf_counter()
        # The longest method first: the binary is written with the last.
        order = sorted(self.methods, key=lambda name: -self.methods[name])
        with tempfile.TemporaryDirectory(dir=folder.parent) as work, Child() as child:
            sources = self.prepared.write_models(number, Path(work))
            self._check_size(number, Path(work))
            models = [
                (name, sources[name], folder / manifest.methods[name].shards[number].model)
                for name in order
            ]
            return_memory()  # of what was written
            answer = child.compile(models, self.chip.target, manifest.shared, self.settings)
            checked = self._check(number, child, expected)
            peak = child.peak_memory
            self._check_binaries(number, folder, manifest, child)
        files = sorted(path.name for path in folder.glob(f"shard{number}.*"))
        binaries = [folder / name for name in files if name.endswith(".bin")]
        return {
            "files": files,
            "binary_bytes": sum(path.stat().st_size for path in binaries),
            "seconds": round(time.perf_counter() - started, 2),
            "processor_seconds": round(answer["processor_s"], 2),
            "peak_memory_bytes": peak,
            **checked,
        }

    def _check_binaries(self, number: int, folder: Path, manifest: Manifest, child: Child) -> None:
        """Qualcomm's own library must find in each binary of a shard the graphs that the manifest
        names, with these inputs and outputs: no emulator loads a binary with shared weights."""
        told: dict[str, Any] = {}
        for one in (method.shards[number] for method in manifest.methods.values()):
            one.binary, one.graph = compiled_graph(folder / one.model)
            if one.binary not in told:
                path = str(folder / one.binary)
                told[one.binary] = child.ask("contents", {"binary": path})[0]
            graphs = told[one.binary]["graphs"]
            if one.graph not in graphs:
                wrong = [f"it has the graphs {', '.join(graphs)}"]
            else:
                wrong = differences(one.to_dict(), graphs[one.graph])
            if wrong:
                raise BackendError(
                    f"{one.binary} is not what the manifest says: {wrong[0]}",
                    "Nothing was written; please report the model and the chip.",
                )

    def _check_size(self, number: int, work: Path) -> None:
        size = sum(path.stat().st_size for path in work.iterdir())
        if size > self.chip.context_limit:
            raise ConfigError(
                f"shard {number} takes {size / 1e9:.1f} GB, and a context of {self.chip.name} "
                f"holds {self.chip.context_limit / 1e9:.1f} GB",
                "Use a larger --num-sharding; a module can be exported for cpu, or in parts.",
            )

    def _expected(self, number: int) -> list[dict[str, Array]]:
        """What the reference gives for each probe, which goes on with that in the next shard."""
        found = []
        for probe in self._probes:
            piece = self.prepared.pieces[probe.method][number]
            codes = {v.name: probe.codes[v.name] for v in piece.inputs}
            found.append(run_in_reference(self.prepared, piece, codes))
            probe.codes |= found[-1]
        return found

    def _check(
        self, number: int, child: Child, expected: Sequence[Mapping[str, Array]]
    ) -> dict[str, float | int]:
        """Run each probe of a shard once, where it was compiled, and in the reference.

        Compilers for some chips have been wrong without a word. ``agreement`` is the least cosine
        of an output between both, ``largest_steps`` by how many codes they differ at most, and
        ``rounding`` the least cosine between the reference and floats.
        """
        encodings = self.prepared.encodings
        found: dict[str, float | int] = {}
        agreements, roundings, steps = [], [], []
        for probe, wanted in zip(self._probes, expected, strict=True):
            piece = self.prepared.pieces[probe.method][number]
            codes = {v.name: probe.codes[v.name] for v in piece.inputs}
            got = child.run(probe.method, codes)
            if self.tries_blocks:
                found["same_bits"] = self._same_in_a_block(number, child, codes, got)
            for name in (v.name for v in piece.outputs if not is_cache(v.name)):
                numbers = [encodings[name].dequantize(made[name]) for made in (got, wanted)]
                agreements.append(cosine(*numbers))
                if encodings[name].bits != FLOATS:
                    off = got[name].astype(int) - wanted[name].astype(int)
                    steps.append(int(np.abs(off).max()))
                if name in probe.exact:
                    roundings.append(cosine(numbers[1], probe.exact[name]))
        if min(agreements) < LEAST_AGREEMENT:
            raise BackendError(
                f"shard {number} as compiled for {self.chip.name} computes something else than the "
                f"reference: the cosine between both is {min(agreements):.3f}",
                "Nothing was written. Another --recipe (16a8w has finer steps than int8) or "
                "--num-sharding may compile well; please report the model and the chip.",
            )
        found["agreement"] = round(min(agreements), 6)
        if steps:
            found["largest_steps"] = max(steps)
        if roundings:
            found["rounding"] = round(min(roundings), 6)
        return found

    def _same_in_a_block(
        self, number: int, child: Child, codes: Mapping[str, Array], alone: Mapping[str, Array]
    ) -> bool:
        """Whether the probe's token has the same bits as the first of a block."""
        method = max(self.prepared.methods.values(), key=lambda method: method.tokens)
        tensors, given = method.tensors, {}
        masks = {mask.name: mask for mask in method.masks}
        for value in self.prepared.pieces[method.name][number].inputs:
            one = tensors[value.name]
            if value.name in masks:
                mask = masks[value.name]
                given[value.name] = mask_codes(one, mask, method, self._probes[0].position)
            elif is_cache(value.name):
                given[value.name] = codes[value.name]
            else:
                rows = np.full(one.shape, one.encoding.zero_point, one.encoding.dtype)
                rows[:1] = codes[value.name]
                given[value.name] = rows
        block = child.run(method.name, given)
        new = {cache.new: cache.axis for cache in method.caches}
        firsts = {name: np.moveaxis(a, new.get(name, 0), 0)[:1] for name, a in block.items()}
        return all(
            np.array_equal(firsts[name], np.moveaxis(array, new.get(name, 0), 0))
            for name, array in alone.items()
        )


def run_in_reference(
    prepared: PreparedProgram, piece: Graph, codes: Mapping[str, Array]
) -> dict[str, Array]:
    """The outputs of a shard, computed in the smallest parts to save memory."""
    known = dict(codes)
    for part in split(piece, cut_points(piece)):
        graph = ReferenceGraph(part, prepared.encodings, prepared.weights, prepared.bits)
        known |= graph.run({v.name: known[v.name] for v in part.inputs})
    return {v.name: known[v.name] for v in piece.outputs}


def cosine(first: Array, second: Array) -> float:
    """Between two arrays of numbers.

    >>> cosine(np.array([1.0, 0.0]), np.array([1.0, 1.0])).__round__(4)
    0.7071
    """
    a, b = (array.astype(np.float64).ravel() for array in (first, second))
    lengths = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / lengths if lengths else float(np.array_equal(first, second))
