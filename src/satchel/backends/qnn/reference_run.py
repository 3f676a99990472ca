"""What the NPU should compute: its graph in the reference, every value rounded as the chip does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from satchel.backends.qnn.annotate import constant_encoding
from satchel.backends.qnn.weights import WeightStore
from satchel.backends.qnn.widths import constant_bits, exact_weights, matrices
from satchel.graph.ir import Graph, Weight
from satchel.graph.reference import WeightReader
from satchel.quantize.static import ActivationEncoding, QdqInterpreter

Array = NDArray[Any]


def rounded_reader(
    graph: Graph, encodings: Mapping[str, ActivationEncoding], weights: WeightStore, bits: int
) -> WeightReader:
    """Each weight as the NPU computes with it: matrices decoded, small arrays rounded."""
    layers, exact = matrices(graph), exact_weights(graph, encodings)

    def read(weight: Weight) -> Array:
        if weight.name in layers:
            return weights.matrix(weight.name).numbers()
        array = weights.array(weight.name)
        if weight.name in exact:
            return array
        return constant_encoding(array, constant_bits(weight.name, bits)).round_trip(array)

    return read


class ReferenceGraph:
    """A graph of the NPU that takes and gives codes, as its compiled form does."""

    def __init__(
        self,
        graph: Graph,
        encodings: Mapping[str, ActivationEncoding],
        weights: WeightStore,
        bits: int,
    ) -> None:
        self._graph, self._encodings = graph, encodings
        read = rounded_reader(graph, encodings, weights, bits)
        self._interpreter = QdqInterpreter(read, encodings, frozenset())

    def run(self, codes: Mapping[str, Array]) -> dict[str, Array]:
        numbers = {name: self._encodings[name].dequantize(a) for name, a in codes.items()}
        results = self._interpreter.run(self._graph, numbers)
        return {name: self._encodings[name].quantize(a) for name, a in results.items()}
