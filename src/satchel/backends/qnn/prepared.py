"""A program's methods in the form that the NPU runs, made from the program file itself.

Compiling, the reference's rounded run and the emulator all start from here, so that they cannot
differ in what they compute.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from satchel.backends.qnn.annotate import Encodings
from satchel.backends.qnn.lower import lower
from satchel.backends.qnn.onnx_model import OnnxWriter, WeightFile
from satchel.backends.qnn.payload import Manifest, damaged, read_manifest
from satchel.backends.qnn.reference_run import ReferenceGraph
from satchel.backends.qnn.runner import Execute, Host, ShardedMethod, SmartMaskRunner
from satchel.backends.qnn.shards import cut_points, split
from satchel.backends.qnn.stored import ProgramWeights
from satchel.graph.ir import Graph
from satchel.llm.session import ACCEPT_METHOD, KV_METHOD, LOOKAHEAD_METHOD
from satchel.runtime.program import Program


class PreparedProgram:
    """``encodings`` are known once the program was calibrated; a finished file holds them."""

    def __init__(self, program: Program, methods: dict[str, int], bits: int) -> None:
        from satchel.eval.stored_graphs import read_graphs  # it needs the exporter, which needs us

        self.program, self.bits = program, bits
        self.weights = ProgramWeights(program)
        self.context = int(program.states[0]["shape"][1])
        self.graphs: dict[str, Graph] = read_graphs(program)
        self.lowered = {
            name: lower(self.graphs[name], self.context, tokens) for name, tokens in methods.items()
        }
        self.vocabulary = int(program.methods[0]["outputs"][0]["shape"][-1])
        self.host = Host(self.weights.rows, program.weight)
        self.cuts: list[int] = []
        self.encodings: Encodings = {}

    @staticmethod
    def of(program: Program, manifest: Manifest | None = None) -> PreparedProgram:
        """From a finished file, whose manifest is checked against its graphs."""
        manifest = manifest or read_manifest(program)
        known = {m["name"] for m in program.methods}
        if set(manifest.methods) - known or not program.states:
            raise damaged("the NPU's manifest names methods that the program does not have")
        on_host = {ACCEPT_METHOD}
        if LOOKAHEAD_METHOD in manifest.methods:
            on_host.add(KV_METHOD)
        if known - set(manifest.methods) - on_host:
            raise damaged("the NPU's manifest lacks methods that the program has")
        prepared = PreparedProgram(program, manifest.methods, manifest.bits)
        for method in prepared.lowered.values():
            points = cut_points(method.npu)
            if manifest.cuts != sorted(set(manifest.cuts) & set(points)):
                raise damaged("the NPU's manifest cuts the graph where it cannot be cut")
            for value in method.npu.values():
                plain = value.weight is None and value.constant is None
                if plain and value.name not in manifest.encodings:
                    raise damaged(f"the NPU's manifest has no encoding of {value.name}")
        prepared.cuts, prepared.encodings = manifest.cuts, manifest.encodings
        return prepared

    @cached_property
    def methods(self) -> dict[str, ShardedMethod]:
        return {
            name: ShardedMethod(lowered, split(lowered.npu, self.cuts))
            for name, lowered in self.lowered.items()
        }

    def runner(self, execute: Execute) -> SmartMaskRunner:
        return SmartMaskRunner(self.methods, self.encodings, self.host, self.vocabulary, execute)

    def reference_runner(self) -> SmartMaskRunner:
        """Runs in the reference what the NPU should compute."""
        graphs = {
            (number, name): ReferenceGraph(piece, self.encodings, self.weights, self.bits)
            for name, method in self.methods.items()
            for number, piece in enumerate(method.pieces)
        }
        return self.runner(lambda number, name, codes: graphs[number, name].run(codes))

    def write_models(
        self, shard: int, folder: Path, methods: Sequence[str] | None = None
    ) -> dict[str, Path]:
        """The ONNX models of one shard, by method; they share one file of weights."""
        weights = WeightFile(folder / f"shard{shard}.weights")
        models = {}
        for name in methods or self.methods:
            path = folder / f"shard{shard}.{name}.source.onnx"
            piece = self.methods[name].pieces[shard]
            OnnxWriter(piece, self.encodings, self.weights, weights, self.bits).write(path)
            models[name] = path
        weights.close()
        return models
