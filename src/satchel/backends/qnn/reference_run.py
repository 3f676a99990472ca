"""What the NPU should compute: its graph in the reference, every value rounded as the chip does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.backends.qnn.annotate import constant_encoding
from satchel.backends.qnn.stored import WeightStore
from satchel.graph.ir import Graph, Weight
from satchel.graph.reference import WeightReader
from satchel.quantize.static import ActivationEncoding, QdqInterpreter

Array = NDArray[Any]


def weight_reader(weights: WeightStore, bits: int, rounded: bool = True) -> Any:
    """The numbers of a weight: a matrix's codes decoded, a vector rounded as it will be."""

    def read(weight: Weight) -> Array:
        if len(weight.shape) == 2:
            return weights.matrix(weight.name).numbers()
        array = np.asarray(weights.array(weight.name), np.float32)
        return constant_encoding(array, bits).round_trip(array) if rounded else array

    return read


class ReferenceGraph:
    """A graph of the NPU that takes and gives codes, as its compiled form does."""

    def __init__(
        self,
        graph: Graph,
        encodings: Mapping[str, ActivationEncoding],
        weights: WeightStore,
        bits: int,
        read: WeightReader | None = None,
    ) -> None:
        self._graph, self._encodings = graph, encodings
        read = read or weight_reader(weights, bits)
        self._interpreter = QdqInterpreter(read, encodings, frozenset())

    def run(self, codes: Mapping[str, Array]) -> dict[str, Array]:
        numbers = {name: self._encodings[name].dequantize(a) for name, a in codes.items()}
        results = self._interpreter.run(self._graph, numbers)
        return {name: self._encodings[name].quantize(a) for name, a in results.items()}
