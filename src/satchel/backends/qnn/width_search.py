"""Finds out which layers need 16 bits where 8 would hurt a module's outputs too much."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from satchel.backends.qnn.annotate import MOVES, Encodings, Ranges, annotate
from satchel.backends.qnn.widths import wide_values
from satchel.graph.builder import GraphBuilder
from satchel.graph.ir import Attribute, Graph, Value, Weight
from satchel.graph.reference import WeightReader
from satchel.quantize.static import (
    choose_layers,
    native_runner,
    round_rows,
    signal_to_noise,
    worst_decibels,
)

Array = NDArray[Any]


class WidthSearch:
    """Runs a graph on some examples, exactly and with some of its layers in 16 bits."""

    def __init__(
        self,
        graph: Graph,
        read_weight: WeightReader,
        ranges: Ranges,
        examples: Sequence[Mapping[str, Array]],
    ) -> None:
        self._graph, self._ranges, self._examples = graph, ranges, examples
        rounded = {w.name for w in graph.weights()}

        def read(weight: Weight) -> Array:
            array = read_weight(weight)
            return round_rows(array) if weight.name in rounded else array

        self._read = read
        self._exact = self._outputs(graph, read_weight)

    def choose(self, noise: Mapping[str, float], least_snr: float) -> list[str]:
        """Those with too much noise of their own; if that is not enough, more of the noisiest."""
        return choose_layers(noise, least_snr, self._output_snr)[0]

    def _output_snr(self, wide: Collection[str]) -> float:
        """Of the example and the output that are hurt the most."""
        encodings = annotate(self._graph, self._ranges, 8, wide_values(self._graph, wide))
        made = self._outputs(_rounded_in_8_bits(self._graph, encodings), self._read)
        found = []
        for exact, rounded in zip(self._exact, made, strict=True):
            powers = [signal_to_noise(a, b) for a, b in zip(exact, rounded, strict=True)]
            found.append(worst_decibels(powers))
        return min(found)

    def _outputs(self, graph: Graph, read: WeightReader) -> list[list[Array]]:
        """For each example, all outputs."""
        run = native_runner(graph, read, graph.outputs)
        return [[array for _, array in run(example)] for example in self._examples]


def _rounded_in_8_bits(graph: Graph, encodings: Encodings) -> Graph:
    """The graph with every value rounded that has 8 bits, for the CPU; 16 are as good as floats."""
    b = GraphBuilder(graph.name)
    known: dict[int, Value] = {}

    def rounded(name: str, value: Value) -> Value:
        one = encodings[name]
        if one.bits != 8:
            return value
        steps: dict[str, Attribute] = {"scale": one.scale, "zero": one.zero_point}
        return b.node("dequantize", b.node("quantize", value, **steps), **steps)

    for value in graph.inputs:
        known[id(value)] = rounded(value.name, b.input(value.name, value.shape, value.dtype))
    for node in graph.nodes:
        inputs = [None if v is None else known.get(id(v), v) for v in node.inputs]
        made = b.node(node.op, *inputs, **node.attrs)
        name = node.outputs[0].name
        known[id(node.outputs[0])] = made if node.op in MOVES else rounded(name, made)
    for value in graph.outputs:
        b.output(known[id(value)], value.name)
    return b.finish()
