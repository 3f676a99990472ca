"""The range of every value of a module's graph, from examples of its input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.backends.qnn.annotate import Encodings, annotate
from satchel.backends.qnn.modules.widths import wide_values
from satchel.graph.ir import Graph, attr_int
from satchel.graph.reference import WeightReader
from satchel.quantize.static import calibrate, own_noise

Array = NDArray[Any]
# Scores so far below the highest of their row are as good as none: less than half a step.
_SEEN_SCORES = {8: 8.0, 16: 16.0}


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
    scores = _scores(graph)
    depth = _SEEN_SCORES[bits]

    def view(name: str, array: Array) -> Array:
        if name not in scores:
            return array
        # A mask of -100 or minus infinity would leave no codes for the scores themselves.
        seen: Array = np.maximum(array, array.max(axis=-1, keepdims=True) - depth)
        return seen

    seen = calibrate(graph, read_weight, examples, observer, 16, native=True, view=view)
    ranges = {name: (one.low, one.high) for name, one in seen.items()}
    encodings = annotate(graph, ranges, bits)
    noise = own_noise(graph, read_weight, encodings, examples[0])
    noise = dict(sorted(noise.items(), key=lambda item: item[1]))
    wide = [name for name, snr in noise.items() if snr < least_snr and bits == 8]
    if wide:
        encodings = annotate(graph, ranges, bits, wide_values(graph, wide))
    return CalibratedModule(encodings, noise, wide)


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
