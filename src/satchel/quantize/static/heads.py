"""Steps for each head: queries, keys and values of one head have a range of their own.

They cost nothing, because a layer multiplies every output with a scale anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.graph.ir import Graph, Node, Value
from satchel.graph.ops.attention_codes import MAX_TOKENS, ZERO
from satchel.quantize.static.observers import Observer

Array = NDArray[Any]


@dataclass(frozen=True)
class HeadSteps:
    """``scales`` [3, heads]: a number is ``(code - 128) * scale``, for x [B, T, 3, heads, size]."""

    scales: Array

    def quantize(self, x: Array) -> Array:
        """The codes that the layer gives, halves to even."""
        steps = np.rint(x / self.scales[..., None])
        codes: Array = np.clip(steps + ZERO, 0, 255).astype(np.uint8)
        return codes

    def by_output(self, size: int) -> Array:
        """The scale of each output of the layer."""
        return np.repeat(self.scales.reshape(-1), size)


def attention_inputs(graph: Graph) -> dict[str, int]:
    """The names of what attention in integers could read, and how many heads they have."""
    found: dict[str, int] = {}
    for node in graph.nodes:
        x = node.inputs[0] if node.op == "attention_qkv" else None
        if x is None or x.constant is not None:
            continue
        rows = node.inputs[2] if len(node.inputs) > 2 else None
        tokens = x.shape[1] if rows is None else rows.shape[1]
        heads, size = x.shape[3:]
        known = isinstance(heads, int) and isinstance(size, int) and isinstance(tokens, int)
        if known and size % 4 == 0 and tokens <= MAX_TOKENS:  # type: ignore[operator]
            found[x.name] = heads  # type: ignore[assignment]
    return found


class HeadObserver:
    """Watches each head's queries, keys and values by themselves."""

    def __init__(self, make: Callable[[], Observer], heads: int) -> None:
        self.parts = [[make() for _ in range(heads)] for _ in range(3)]

    def observe(self, x: Array) -> None:
        for part, heads in enumerate(self.parts):
            for head, observer in enumerate(heads):
                observer.observe(x[:, :, part, head])

    def steps(self) -> HeadSteps:
        scales = [[one.encoding(symmetric=True).scale for one in heads] for heads in self.parts]
        return HeadSteps(np.array(scales, np.float32))


def feeding_layer(
    node: Node, makers: Mapping[int, Node], readers: Mapping[int, list[Node]]
) -> Node | None:
    """The layer whose result an attention reads, and nobody else, perhaps in another shape."""
    value: Value | None = node.inputs[0]
    while value is not None and len(readers[id(value)]) == 1:
        maker = makers.get(id(value))
        if maker is None or maker.op != "reshape":
            plain = maker is not None and maker.attrs.get("activation", "none") == "none"
            return maker if maker is not None and maker.op == "linear" and plain else None
        value = maker.inputs[0]
    return None


def attention_name(graph: Graph, x: str) -> str:
    """What a user knows of the attention that reads the value x: the weight of its layer."""
    makers = {v.name: node for node in graph.nodes for v in node.outputs}
    node = makers.get(x)
    while node is not None and node.op == "reshape" and node.inputs[0] is not None:
        node = makers.get(node.inputs[0].name)
    weight = node.inputs[1] if node is not None and node.op == "linear" else None
    return weight.name if weight is not None else x
