"""Measures the range of every value of the NPU's graph, piece by piece.

All calls go through one piece before the next piece's weights are read, so that memory is that
of one piece and of what passes between two of them. A module is one piece without caches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.backends.qnn.annotate import CACHE_BITS, Encodings, Ranges, annotate
from satchel.backends.qnn.halves import FLOATS
from satchel.backends.qnn.lowering import Lowered
from satchel.backends.qnn.ops import bounded
from satchel.backends.qnn.weights import WeightStore
from satchel.backends.qnn.width_search import WidthSearch
from satchel.backends.qnn.widths import layer_widths, matrices, wide_values
from satchel.errors import RecipeError
from satchel.graph.ir import Graph, Node, Value, attr_int, largest
from satchel.graph.reference import WeightReader
from satchel.quantize.static import make_observer, native_runner, own_noise, reference_runner
from satchel.quantize.static.calibrate import finite

Array = NDArray[Any]
_COMPARED = 8  # examples that tell whether 8 bits are enough
# Scores so far below the highest of their row are as good as none: less than half a step.
_SEEN_SCORES = {8: 8.0, 16: 16.0}
# Past these a function is flat (gelu: by less than its steps), so its input needs no codes there.
_FLAT = {
    "hardswish": (-3.0, np.inf),
    "hardsigmoid": (-3.0, 3.0),
    "tanh": (-6.0, 6.0),
    "sigmoid": (-12.0, 12.0),
}
_FLAT_IN_8_BITS = {"gelu": (-4.0, np.inf)}


@dataclass
class Feed:
    """A call that ranges are measured on: the NPU's inputs, as numbers, but for its caches."""

    values: dict[str, Array]
    position: int = 0  # of the first token; a text begins at 0, with an empty cache


@dataclass
class Calibrated:
    """The encoding of every value, and what the first call put into each cache."""

    encodings: Encodings
    caches: dict[str, Array]
    ranges: Ranges = field(default_factory=dict)
    noise: dict[str, float] = field(default_factory=dict)  # dB by layer, the noisiest first
    wide: list[str] = field(default_factory=list)  # layers that have 16 bits where 8 would hurt


@dataclass(frozen=True)
class Calibration:
    """``bits`` are those of activations, ``cache_bits`` of the KV cache. Layers that 8 bits alone
    leave with less than ``least_snr`` dB have 16, and so has what leads to them; None: all have the
    same. ``layer_bits`` are those of layers, by their weights, that were given others."""

    bits: int
    observer: str = "minmax"
    least_snr: float | None = None
    progress: Callable[[int, int], None] = lambda done, total: None
    cache_bits: int = CACHE_BITS
    layer_bits: Mapping[str, int] = field(default_factory=dict)

    def run(
        self,
        lowered: Lowered,
        pieces: Sequence[Graph],
        feeds: Sequence[Feed],
        weights: WeightStore,
        before: Calibrated | None = None,
    ) -> Calibrated:
        """Encodings for a lowered graph that was split into pieces; what other graphs of the
        program have, ``before``, is in them too, and what both have is as it was there."""
        if not feeds:
            raise RecipeError(
                "there is nothing to calibrate on", "Give some examples of the model's input."
            )
        if self.bits == FLOATS:  # nothing depends on ranges, if they are not too large
            feeds = _first_text(feeds)
        examples = [dict(feed.values) for feed in feeds[:_COMPARED]]
        ranges, caches = self._measure(lowered, pieces, feeds, weights)
        if before is not None:
            ranges |= before.ranges
            caches |= before.caches
        widths = layer_widths(lowered.npu, self.layer_bits, self.bits)
        encodings = annotate(lowered.npu, ranges, self.bits, widths, self.cache_bits)
        if before is not None:
            encodings |= before.encodings
        if self.least_snr is None or self.bits == FLOATS:
            return Calibrated(encodings, caches, ranges)
        graph, read = _for_the_cpu(lowered.npu, weights), _reader(weights)
        noise = own_noise(graph, read, encodings, examples[0])
        noise = dict(sorted(noise.items(), key=lambda item: item[1]))
        wide: list[str] = []
        if self.bits == 8:
            wide = WidthSearch(graph, read, ranges, examples).choose(noise, self.least_snr)
            encodings = annotate(graph, ranges, self.bits, wide_values(graph, wide))
        return Calibrated(encodings, caches, ranges, noise, wide)

    def _measure(
        self,
        lowered: Lowered,
        pieces: Sequence[Graph],
        feeds: Sequence[Feed],
        weights: WeightStore,
    ) -> tuple[Ranges, dict[str, Array]]:
        bits = self.bits or 16  # of floats nothing is cut off
        make, view = make_observer(self.observer), _view(lowered.npu, bits)
        watched = {v.name: make() for v in lowered.npu.values() if v.weight is None}
        kept: dict[str, Array] = {}
        for number, piece in enumerate(pieces):
            run = _runner(piece, weights, native=not lowered.caches)
            shapes = {v.name: largest(v.shape) for v in piece.inputs}
            caches = [cache for cache in lowered.caches if cache.name in shapes]
            filled: dict[str, Array] = {}
            later = {v.name for other in pieces[number + 1 :] for v in other.inputs}
            for place, feed in enumerate(feeds):
                if feed.position == 0:
                    filled = {c.name: np.zeros(shapes[c.name], np.float32) for c in caches}
                given = {name: (feed.values | filled)[name] for name in shapes}
                for name, array in given.items():
                    watched[name].observe(finite(name, bounded(array)))
                results: dict[str, Array] = {}
                for name, array in run(given):
                    results[name] = array
                    watched[name].observe(finite(name, view(name, bounded(array))))
                for cache in caches:
                    made = results[cache.new]
                    slots = np.moveaxis(filled[cache.name], cache.axis, 0)
                    span = slice(feed.position, feed.position + lowered.tokens)
                    slots[span] = np.moveaxis(made, cache.axis, 0)
                    if place == 0:
                        kept[cache.name] = made
                known = feed.values | results
                feed.values = {name: array for name, array in known.items() if name in later}
                self.progress(number * len(feeds) + place + 1, len(pieces) * len(feeds))
        return {name: one.range(bits, False) for name, one in watched.items()}, kept


def _first_text(feeds: Sequence[Feed]) -> Sequence[Feed]:
    later = [place for place, feed in enumerate(feeds) if place and feed.position == 0]
    return feeds[: later[0]] if later else feeds


def _reader(weights: WeightStore) -> WeightReader:
    return lambda weight: weights.array(weight.name)


def _runner(
    piece: Graph, weights: WeightStore, native: bool
) -> Callable[[Mapping[str, Array]], Any]:
    """Runs a piece in floats and gives all its values. Images want the native core; the weights
    of a language model would have to be written out for it."""
    if not native:
        return reference_runner(piece, _reader(weights))
    graph = _for_the_cpu(piece, weights)
    return native_runner(graph, _reader(weights), [v for n in graph.nodes for v in n.outputs])


def outputs_in_floats(
    graph: Graph, weights: WeightStore, given: Mapping[str, Array]
) -> dict[str, Array]:
    """What a graph without caches gives, before anything is rounded."""
    run = native_runner(_for_the_cpu(graph, weights), _reader(weights), graph.outputs)
    return dict(run(given))


def _for_the_cpu(graph: Graph, weights: WeightStore) -> Graph:
    """A graph for running it in floats: only layers' matrices are weights there."""
    layers = matrices(graph)
    made: dict[int, Value] = {}
    for value in graph.values():
        if value.weight is None:
            continue
        made[id(value)] = own = Value(value.name, value.type)
        if value.name in layers:
            own.weight = replace(value.weight, role="linear")
        else:
            own.constant = weights.array(value.name)
    nodes = [
        Node(n.op, [made.get(id(v), v) for v in n.inputs], n.outputs, n.attrs) for n in graph.nodes
    ]
    return Graph("forward", graph.inputs, graph.outputs, nodes)


def _view(graph: Graph, bits: int) -> Callable[[str, Array], Array]:
    """What of a value, by its name, counts for its range."""
    scores, limits, depth = _scores(graph), _limits(graph, bits), _SEEN_SCORES[bits]

    def view(name: str, array: Array) -> Array:
        if name in limits:
            return np.clip(array, *limits[name])
        if name not in scores:
            return array
        # A mask of -100 or minus infinity would leave no codes for the scores themselves.
        seen: Array = np.maximum(array, array.max(axis=-1, keepdims=True) - depth)
        return seen

    return view


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
