"""A program's methods in the form that the NPU runs, made from the program file itself.

Compiling, calibrating and the reference's rounded run all start from here, so that they cannot
differ in what they compute. Running a compiled program needs none of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.backends.qnn.annotate import Encodings
from satchel.backends.qnn.halves import FLOATS
from satchel.backends.qnn.lowering import Lowered, lower
from satchel.backends.qnn.manifest import CompiledMethod, Manifest, damaged
from satchel.backends.qnn.onnx_writer import ExternalData, OnnxWriter
from satchel.backends.qnn.ops import LAYERS, is_activation
from satchel.backends.qnn.payload import read_manifest
from satchel.backends.qnn.reference_run import ReferenceGraph
from satchel.backends.qnn.runner import Execute, Runner
from satchel.backends.qnn.shards import cut_points, split
from satchel.backends.qnn.speech_runner import make_runner
from satchel.backends.qnn.weights import ProgramWeights
from satchel.backends.qnn.widths import change_widths
from satchel.graph.ir import Graph
from satchel.program.about import AboutSpeech
from satchel.program.stored_graphs import read_graphs
from satchel.runtime.program import Program

Array = NDArray[Any]
_LARGEST_BIAS = 2.0**30  # in steps of a layer's sums, which have 32 bits


class PreparedProgram:
    """``encodings`` are known once the program was calibrated; a finished file holds them.

    ``methods`` has the tokens of each call; a module's takes none.
    """

    def __init__(
        self,
        program: Program,
        methods: dict[str, int],
        bits: int,
        row_parts: Mapping[str, int] | None = None,
    ) -> None:
        self.program, self.bits, self.row_parts = program, bits, dict(row_parts or {})
        self.graphs: dict[str, Graph] = read_graphs(program)
        self.weights = ProgramWeights(program, bits)
        caches = [state for state in program.states if state["cache"]]
        self.context = int(caches[0]["shape"][1]) if caches else 0
        # Encoder and decoder are two graphs; other methods are one graph in several lengths.
        self._own_names = isinstance(program.about, AboutSpeech)
        self._plain = {
            name: self.lower(self.source(name), tokens, self.context)
            for name, tokens in methods.items()
        }
        self.lowered = dict(self._plain)
        self.cuts: list[int] = []
        self.encodings: Encodings = {}

    @staticmethod
    def of(program: Program, manifest: Manifest | None = None) -> PreparedProgram:
        """From a finished file, whose manifest is checked against its graphs."""
        manifest = manifest or read_manifest(program)
        known = {m["name"] for m in program.methods}
        if set(manifest.methods) - known:
            raise damaged("the NPU's manifest names methods that the program does not have")
        prepared = PreparedProgram(program, manifest.tokens, manifest.bits, manifest.row_parts)
        for method in prepared.lowered.values():
            points = cut_points(method.npu)
            if manifest.cuts != sorted(set(manifest.cuts) & set(points)):
                raise damaged("the NPU's manifest cuts the graph where it cannot be cut")
            for value in method.npu.values():
                if is_activation(value) and value.name not in manifest.encodings:
                    raise damaged(f"the NPU's manifest has no encoding of {value.name}")
        prepared.cuts = manifest.cuts
        prepared.use(manifest.encodings)
        if prepared.methods != {n: _bare(m) for n, m in manifest.methods.items()}:
            raise damaged("the NPU's manifest does not describe the program's methods")
        return prepared

    def source(self, method: str) -> str:
        """The graph that the NPU runs: a method's own, or what the CPU leaves of it."""
        return f"{method}.npu" if f"{method}.npu" in self.graphs else method

    def lower(self, graph: str, tokens: int, context: int) -> Lowered:
        fuse_bias = not self.weights.have_codes
        lowered = lower(
            self.graphs[graph],
            self.bits,
            tokens,
            context,
            fuse_bias,
            self.row_parts,
            self._own_names,
        )
        return replace(lowered, name=graph.removesuffix(".npu"))

    def use(self, encodings: Encodings) -> None:
        """Take the encodings of all values, and change between 8 and 16 bits where they do.

        A bias is counted in steps of input times weight. Where a layer's input or a row of its
        weight is always zero, those would be too small for it: then the row's steps are larger.
        """
        self.encodings = dict(encodings)
        for name, plain in self._plain.items():
            npu = change_widths(plain.npu, self.encodings, self.bits)
            self.lowered[name] = replace(plain, npu=npu)
            for node in npu.nodes:
                bias = node.inputs[2] if node.op in LAYERS and len(node.inputs) > 2 else None
                if bias is None or self.bits == FLOATS:
                    continue
                x, weight = node.inputs[0], node.inputs[1]
                assert x is not None and weight is not None
                most = np.abs(self.weights.array(bias.name).astype(np.float64)) / _LARGEST_BIAS
                least = (most / self.encodings[x.name].scale).astype(np.float32)
                known = self.weights.least.get(weight.name, np.float32(0))
                self.weights.least[weight.name] = np.maximum(known, least)
        self.__dict__.pop("pieces", None)

    @cached_property
    def pieces(self) -> dict[str, list[Graph]]:
        """The graphs of each method's shards."""
        return {name: split(one.npu, self.cuts) for name, one in self.lowered.items()}

    @property
    def methods(self) -> dict[str, CompiledMethod]:
        """How each method is called."""
        return {
            name: CompiledMethod.of(lowered, self.pieces[name], self.encodings, set(self.graphs))
            for name, lowered in self.lowered.items()
        }

    def reference_runner(self) -> Runner:
        """Runs in the reference what the NPU should compute."""
        graphs = {
            (number, name): ReferenceGraph(piece, self.encodings, self.weights, self.bits)
            for name, pieces in self.pieces.items()
            for number, piece in enumerate(pieces)
        }
        return self.runner(lambda number, name, codes: graphs[number, name].run(codes))

    def runner(self, execute: Execute) -> Runner:
        return make_runner(self.program, self.methods, execute)

    def write_models(
        self, shard: int, folder: Path, methods: Sequence[str] | None = None
    ) -> dict[str, Path]:
        """The ONNX models of one shard, by method; they share one file of weights."""
        weights = ExternalData(folder / f"shard{shard}.weights")
        models = {}
        for name in methods or self.pieces:
            path = folder / f"shard{shard}.{name}.source.onnx"
            piece = self.pieces[name][shard]
            OnnxWriter(piece, self.encodings, self.weights, weights, self.bits).write(path)
            models[name] = path
        weights.close()
        return models


def _bare(method: CompiledMethod) -> CompiledMethod:
    """Without what only compiling tells."""
    shards = [replace(shard, binary="", graph="") for shard in method.shards]
    return replace(method, shards=shards)
