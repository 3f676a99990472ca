"""Which values of the NPU's graph have how many bits, and the range that their codes span.

Ranges come from running the graph on some text. Values that only moved keep their encoding, so
that nothing is rounded twice; what is known beforehand (a softmax lies between 0 and 1) is not
measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from satchel.backends.qnn.halves import FLOATS, HALVES, check_range, make_encoding
from satchel.backends.qnn.ops import is_activation
from satchel.graph.ir import Graph, Node
from satchel.graph.ops import Trait, ops_with
from satchel.quantize.static import ActivationEncoding

Array = NDArray[Any]
Ranges = dict[str, tuple[float, float]]
Encodings = dict[str, ActivationEncoding]

CACHE_BITS = 8  # or 16, where the chip multiplies 16 bits by 16
# A hidden slot's score lies this far below the lowest that was seen: e^-20 is no 16-bit step.
MASK_MARGIN = 20.0
# A pad is of zeros, which every encoding has a code for.
MOVES = ops_with(Trait.keeps_codes)


def is_copy(node: Node) -> bool:
    """A node that only changes the bits of a value: 16 become those of the cache."""
    return node.op == "affine" and node.attrs.get("scale") == 1.0 and "shift" not in node.attrs


def is_mask(name: str) -> bool:
    return name.startswith("mask.")


def is_cache(name: str) -> bool:
    """What is kept between calls: a text's own keys and values, or those of what is heard."""
    return name.startswith(("cache.", "heard."))


def annotate(
    graph: Graph,
    ranges: Ranges,
    bits: int,
    widths: Mapping[str, int] | None = None,
    cache_bits: int = CACHE_BITS,
) -> Encodings:
    """The encoding of every activation of a graph, from the ranges that were seen.

    Those that ``widths`` names have bits of their own, the KV cache has ``cache_bits``.
    """
    if bits == FLOATS:
        return _in_floats(graph, ranges)
    made: Encodings = {}
    own = widths or {}

    def spanning(name: str, low: float, high: float) -> None:
        made[name] = ActivationEncoding.of_range(low, high, own.get(name, bits))

    masked = mask_depth(graph, ranges)
    for value in graph.inputs:
        if is_mask(value.name):
            spanning(value.name, -masked, 0.0)
        elif is_cache(value.name):
            made[value.name] = ActivationEncoding.of_range(*ranges[value.name], cache_bits)
        else:
            spanning(value.name, *ranges[value.name])
    for node in graph.nodes:
        name = node.outputs[0].name
        first = node.inputs[0]
        assert first is not None
        if node.op in MOVES and is_activation(first):
            made[name] = made[first.name]
        elif node.op == "concat" and is_cache(first.name):
            # A cache, what is new in it and both together are the same codes, in whatever shape.
            made[first.name] = made[name] = made[str(_name(node, 1))]
        elif is_copy(node):
            made[name] = ActivationEncoding.of_range(*ranges[name], cache_bits)
        elif node.op in ("softmax", "sigmoid", "hardsigmoid"):
            spanning(name, 0.0, 1.0)
        elif node.op == "tanh":  # the chip takes this for granted: what is only above 0 is wrong
            spanning(name, -1.0, 1.0)
        elif _masked_by(node):
            low, high = ranges[first.name]
            spanning(name, low - MASK_MARGIN, high)
        else:
            spanning(name, *ranges[name])
    _join_concats(graph, made)
    return made


def _in_floats(graph: Graph, ranges: Ranges) -> Encodings:
    hidden = {node.outputs[0].name for node in graph.nodes if _masked_by(node)}
    for name, (low, high) in ranges.items():
        if not is_mask(name) and name not in hidden:
            check_range(name, low, high)
    return {value.name: HALVES for value in graph.values() if is_activation(value)}


def mask_depth(graph: Graph, ranges: Ranges) -> float:
    """What is added to the scores of hidden slots: enough for each layer's range."""
    spans = [
        ranges[node.inputs[0].name]
        for node in graph.nodes
        if _masked_by(node) and node.inputs[0] is not None
    ]
    return max((high - low for low, high in spans), default=0.0) + MASK_MARGIN


def _masked_by(node: Node) -> bool:
    return node.op == "add" and node.inputs[1] is not None and is_mask(node.inputs[1].name)


def _join_concats(graph: Graph, made: Encodings) -> None:
    """What is put together is rounded to the whole's steps at once, where it is made.

    But for a layer with a relu: its sums are cut off where their codes end, which are its own.
    """
    makers = {node.outputs[0].name: node for node in graph.nodes}
    for node in graph.nodes:
        if node.op != "concat" or is_cache(str(_name(node, 0))):
            continue
        for part in node.inputs:
            assert part is not None
            maker = makers.get(part.name)
            whole = made[node.outputs[0].name]
            own = (
                maker is None
                or maker.op in MOVES
                or maker.attrs.get("activation", "none") != "none"
            )
            if not own and made[part.name].bits == whole.bits:
                made[part.name] = whole


def _name(node: Node, place: int) -> str | None:
    value = node.inputs[place]
    return value.name if value is not None else None


def constant_encoding(array: Array, bits: int) -> ActivationEncoding:
    """For a small stored array: its own range."""
    return make_encoding(float(array.min()), float(array.max()), bits)
