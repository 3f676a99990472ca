"""The range of every value of a module's graph, from examples of its input."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.backends.qnn.annotate import MOVES, Encodings, Ranges, annotate
from satchel.backends.qnn.modules.widths import wide_values
from satchel.graph.builder import GraphBuilder
from satchel.graph.ir import Attribute, Graph, Value, Weight, attr_int
from satchel.graph.reference import WeightReader
from satchel.quantize.static import (
    calibrate,
    decibels,
    native_runner,
    own_noise,
    round_rows,
    signal_to_noise,
)

Array = NDArray[Any]
_COMPARED = 8  # examples that tell whether 8 bits are enough
# Scores so far below the highest of their row are as good as none: less than half a step.
_SEEN_SCORES = {8: 8.0, 16: 16.0}
# Past these a function is flat (gelu: by less than its steps), so its input needs no codes there.
_FLAT = {"hardswish": (-3.0, np.inf), "hardsigmoid": (-3.0, 3.0)}
_FLAT_IN_8_BITS = {"gelu": (-4.0, np.inf)}


@dataclass(frozen=True)
class CalibratedModule:
    encodings: Encodings
    noise: dict[str, float]  # signal to noise in dB by layer, the noisiest first
    wide: list[str]  # layers that have 16 bits because 8 would have hurt too much


def calibrate_module(
    graph: Graph,
    read_weight: WeightReader,
    examples: Sequence[Mapping[str, Array]],
    observer: str,
    bits: int,
    least_snr: float,
) -> CalibratedModule:
    """Encodings for a lowered graph in ``bits``.

    Layers that 8 bits alone leave with less than ``least_snr`` dB have 16, and so has what leads
    to them.
    """
    scores, limits = _scores(graph), _limits(graph, bits)
    depth = _SEEN_SCORES[bits]

    def view(name: str, array: Array) -> Array:
        if name in limits:
            return np.clip(array, *limits[name])
        if name not in scores:
            return array
        # A mask of -100 or minus infinity would leave no codes for the scores themselves.
        seen: Array = np.maximum(array, array.max(axis=-1, keepdims=True) - depth)
        return seen

    seen = calibrate(graph, read_weight, examples, observer, bits, native=True, view=view)
    ranges = {name: (one.low, one.high) for name, one in seen.items()}
    encodings = annotate(graph, ranges, bits)
    noise = own_noise(graph, read_weight, encodings, examples[0])
    noise = dict(sorted(noise.items(), key=lambda item: item[1]))
    wide: list[str] = []
    if bits == 8:
        search = _WidthSearch(graph, read_weight, ranges, examples[:_COMPARED])
        wide = search.choose(noise, least_snr)
        encodings = annotate(graph, ranges, bits, wide_values(graph, wide))
    return CalibratedModule(encodings, noise, wide)


class _WidthSearch:
    """Finds out which layers need 16 bits so that the module's outputs are good."""

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
        names = list(noise)
        noisy = sum(snr < least_snr for snr in noise.values())
        counts = [noisy, *(n for n in (len(names) // 4, len(names) // 2, len(names)) if n > noisy)]
        found = []
        for count in counts:
            snr = self._output_snr(names[:count])
            found.append((snr, count))
            if snr >= least_snr:
                return names[:count]
        return names[: max(found)[1]]

    def _output_snr(self, wide: Collection[str]) -> float:
        """Of the example whose outputs are hurt the most."""
        encodings = annotate(self._graph, self._ranges, 8, wide_values(self._graph, wide))
        made = self._outputs(_rounded_in_8_bits(self._graph, encodings), self._read)
        found = []
        for exact, rounded in zip(self._exact, made, strict=True):
            powers = [signal_to_noise(a, b) for a, b in zip(exact, rounded, strict=True)]
            found.append(decibels(sum(p[0] for p in powers), sum(p[1] for p in powers)))
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


def _limits(graph: Graph, bits: int) -> dict[str, tuple[float, float]]:
    """Between which numbers a value matters to its only reader."""
    known = _FLAT | (_FLAT_IN_8_BITS if bits == 8 else {})
    readers: dict[str, list[str]] = {}
    for node in graph.nodes:
        for value in node.inputs:
            if value is not None:
                readers.setdefault(value.name, []).append(node.op)
    made = {v.name for v in graph.outputs}
    return {
        name: known[ops[0]]
        for name, ops in readers.items()
        if len(ops) == 1 and ops[0] in known and name not in made
    }


def _scores(graph: Graph) -> set[str]:
    """What a softmax over the last axis reads, also where it was reshaped on the way."""
    makers = {id(node.outputs[0]): node for node in graph.nodes}
    found = set()
    for node in graph.nodes:
        value = node.inputs[0] if node.op == "softmax" else None
        if value is None or attr_int(node.attrs, "axis", -1) not in (-1, len(value.shape) - 1):
            continue
        while value is not None:
            found.add(value.name)
            maker = makers.get(id(value))
            source = maker.inputs[0] if maker is not None and maker.op == "reshape" else None
            value = source if source is not None and source.shape[-1] == value.shape[-1] else None
    return found
