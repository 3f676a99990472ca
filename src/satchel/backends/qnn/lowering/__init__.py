"""From a method's graph to the form that the NPU runs: static shapes, plain ops, no state.

A language model's KV cache is an input, and only the keys and values of the new tokens are
outputs: the host writes them into its cache, and a mask hides the slots that hold nothing yet.
What the NPU cannot do well (looking up embeddings, sines of positions) stays on the host, in a
graph of its own. A module is the same without caches.
"""

from __future__ import annotations

from collections.abc import Mapping

from satchel.backends.qnn.lowering import attention, functions  # noqa: F401  they register
from satchel.backends.qnn.lowering.state import CacheInput, Lowered, Lowering, MaskInput
from satchel.backends.qnn.ops import is_activation
from satchel.graph.ir import Graph

__all__ = ["CacheInput", "Lowered", "MaskInput", "lower"]


def lower(
    graph: Graph,
    bits: int,
    tokens: int = 0,
    context: int = 0,
    fuse_bias: bool = False,
    row_parts: Mapping[str, int] | None = None,
    own_names: bool = False,
) -> Lowered:
    """Lower a method for activations of ``bits`` and blocks of exactly ``tokens``.

    ``fuse_bias`` keeps biases inside of layers. It needs weights whose scales may still be chosen:
    a bias has 32 bits in steps of input times weight, which may be too fine for it. A last layer
    whose weight ``row_parts`` names is computed in so many parts, each with some of the rows. With
    ``own_names`` no value inside of it is called as one of another method: methods are usually one
    graph in several lengths, whose values have the same ranges.
    """
    lowered = Lowering(graph, bits, tokens, context, fuse_bias, row_parts or {}).run()
    if own_names:
        passed = {id(v) for v in (*lowered.npu.inputs, *lowered.npu.outputs)}
        for value in lowered.npu.values():
            if is_activation(value) and id(value) not in passed:
                value.name = f"{graph.name}/{value.name}"
    return lowered
