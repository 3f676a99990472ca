"""A module's program in the form that the NPU runs, made from the program file itself.

Compiling, calibrating and the reference's rounded run all start from here, so that they cannot
differ in what they compute.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.backends.qnn.annotate import Encodings, constant_encoding, is_activation
from satchel.backends.qnn.modules.lower import LAYERS, lower_module
from satchel.backends.qnn.modules.place import AFTER, BEFORE, METHOD, NPU
from satchel.backends.qnn.modules.widths import WIDE, change_widths, constant_bits, exact_weights
from satchel.backends.qnn.modules.writer import ModuleWriter
from satchel.backends.qnn.onnx_model import WeightFile
from satchel.backends.qnn.payload import Manifest, damaged
from satchel.backends.qnn.reference_run import ReferenceGraph
from satchel.backends.qnn.stored import StoredMatrix
from satchel.graph.ir import Graph, Node, Value, Weight
from satchel.graph.reference import WeightReader
from satchel.quantize.static import quantize_rows
from satchel.runtime.program import Program

Array = NDArray[Any]
_LARGEST_BIAS = 2.0**30  # in steps of a layer's sums, which have 32 bits
_ENDLESS = 1e4  # what a mask's infinities become: no softmax sees the difference


class ModuleWeights:
    """The weights of a module's program: matrices of layers as codes of 8 bits.

    ``least`` has, by name, the smallest scale that each row of a matrix may have.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self._matrices: dict[str, StoredMatrix] = {}
        self.least: dict[str, Array] = {}

    def array(self, name: str) -> Array:
        array = self._program.weight(name.removesuffix(WIDE))
        return np.clip(array, -_ENDLESS, _ENDLESS) if array.dtype == np.float32 else array

    def matrix(self, name: str) -> StoredMatrix:
        if name not in self._matrices:
            rows = self._program.weight(name)
            codes, scales = quantize_rows(rows)
            least = self.least.get(name, np.float32(0))
            if (scales < least).any():
                scales = np.maximum(scales, least)
                codes = np.rint(rows / scales[:, None]).astype(np.int8)
            self._matrices[name] = StoredMatrix(codes, scales[:, None], None, 8)
        return self._matrices[name]


class PreparedModule:
    """``encodings`` are known once the program was calibrated; a finished file holds them."""

    def __init__(self, program: Program, bits: int) -> None:
        from satchel.eval.stored_graphs import read_graphs  # it needs the exporter, which needs us

        graphs = read_graphs(program)
        if METHOD not in graphs:
            raise damaged(f"a module's program has no method {METHOD}")
        self.program, self.bits = program, bits
        self.graphs: dict[str, Graph] = graphs
        self.source = NPU if NPU in graphs else METHOD  # the method that the NPU runs
        self._plain = self.npu = lower_module(graphs[self.source], bits)
        self.weights = ModuleWeights(program)
        self.encodings: Encodings = {}

    @staticmethod
    def of(program: Program, manifest: Manifest) -> PreparedModule:
        """From a finished file, whose manifest is checked against its graph."""
        prepared = PreparedModule(program, manifest.bits)
        prepared._check_parts()
        for value in prepared.npu.values():
            if is_activation(value) and value.name not in manifest.encodings:
                raise damaged(f"the NPU's manifest has no encoding of {value.name}")
        prepared.use(manifest.encodings)
        return prepared

    def _check_parts(self) -> None:
        """Each part is given what those before it make."""
        whole = self.graphs[METHOD]
        known = {v.name: v.type for v in whole.inputs}
        for name in (BEFORE, NPU, AFTER):
            part = self.graphs.get(name) if name != NPU else self.npu
            for value in part.inputs if part else ():
                if known.get(value.name) != value.type:
                    raise damaged(f"nothing gives {value.name} to {name}")
            known |= {v.name: v.type for v in (part.outputs if part else ())}
        for value in whole.outputs:
            if known.get(value.name) != value.type:
                raise damaged(f"nothing makes the output {value.name}")

    def use(self, encodings: Encodings) -> None:
        """Take the encodings of all values, and change between 8 and 16 bits where they do.

        A bias is counted in steps of input times weight. Where a layer's input or a row of its
        weight is always zero, those would be too small for it: then the row's steps are larger.
        """
        self.encodings = dict(encodings)
        self.npu = change_widths(self._plain, self.encodings, self.bits)
        for node in self.npu.nodes:
            bias = node.inputs[2] if node.op in LAYERS and len(node.inputs) > 2 else None
            if bias is None:
                continue
            x, weight = node.inputs[0], node.inputs[1]
            assert x is not None and weight is not None
            most = np.abs(self.weights.array(bias.name).astype(np.float64)) / _LARGEST_BIAS
            least = (most / self.encodings[x.name].scale).astype(np.float32)
            known = self.weights.least.get(weight.name, np.float32(0))
            self.weights.least[weight.name] = np.maximum(known, least)

    def reference(self) -> ReferenceGraph:
        """Runs in the reference what the NPU should compute."""
        return ReferenceGraph(self.npu, self.encodings, self.weights, self.bits, self._rounded())

    def _rounded(self) -> WeightReader:
        """Each weight as the NPU computes with it."""
        matrices, exact = _matrices(self.npu), exact_weights(self.npu, self.encodings)

        def read(weight: Weight) -> Array:
            if weight.name in matrices:
                return self.weights.matrix(weight.name).numbers()
            array = self.weights.array(weight.name)
            if weight.name in exact:
                return array
            return constant_encoding(array, constant_bits(weight.name, self.bits)).round_trip(array)

        return read

    def float_graph(self) -> Graph:
        """The NPU's graph for running it in floats: only layers' matrices are weights there."""
        matrices = _matrices(self._plain)
        made: dict[int, Value] = {}
        for value in self._plain.values():
            if value.weight is None:
                continue
            made[id(value)] = own = Value(value.name, value.type)
            if value.name in matrices:
                own.weight = replace(value.weight, role="linear")
            else:
                own.constant = self.weights.array(value.name)
        nodes = [
            Node(n.op, [made.get(id(v), v) for v in n.inputs], n.outputs, n.attrs)
            for n in self._plain.nodes
        ]
        return Graph(METHOD, self._plain.inputs, self._plain.outputs, nodes)

    def write_model(self, folder: Path) -> Path:
        """The ONNX model, with its weights beside it."""
        weights = WeightFile(folder / "weights")
        path = folder / "source.onnx"
        ModuleWriter(self.npu, self.encodings, self.weights, weights, self.bits).write(path)
        weights.close()
        return path

    def codes(self, numbers: Mapping[str, Array]) -> dict[str, Array]:
        """What the NPU is given for these numbers."""
        return {
            v.name: self.encodings[v.name].quantize(np.asarray(numbers[v.name]))
            for v in self.npu.inputs
        }


def _matrices(graph: Graph) -> set[str]:
    """Names of the layers' weights."""
    return {str(n.inputs[1].name) for n in graph.nodes if n.op in LAYERS and n.inputs[1]}
