"""The reference's quantised run: every annotated value is rounded as soon as it is made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.graph.ir import Graph, Node, Weight
from satchel.graph.reference import AfterNode, ReferenceInterpreter, WeightReader
from satchel.quantize.static.encoding import ActivationEncoding

Array = NDArray[Any]


def quantize_rows(weight: Array, bits: int = 8) -> tuple[Array, Array]:
    """Symmetric codes and one scale (float32) for each row of a weight ``[rows, …]``.

    >>> codes, scales = quantize_rows(np.array([[127.0, -63.5]], np.float32))
    >>> codes.tolist(), scales.tolist()
    ([[127, -64]], [1.0])
    """
    rows = weight.reshape(len(weight), -1).astype(np.float32)
    most = np.float32((1 << bits - 1) - 1)
    scales = np.abs(rows).max(axis=1) / most
    scales = np.where(scales == 0, np.float32(1), scales).astype(np.float32)
    codes = np.clip(np.rint(rows / scales[:, None]), -most, most)
    return codes.astype(np.int8 if bits == 8 else np.int16).reshape(weight.shape), scales


def round_rows(weight: Array, bits: int = 8) -> Array:
    """What is left of a weight after its rows were quantised."""
    codes, scales = quantize_rows(weight, bits)
    shape = (len(weight), *(1 for _ in weight.shape[1:]))
    rounded: Array = codes.astype(np.float32) * scales.reshape(shape)
    return rounded


class QdqInterpreter:
    """Runs a float graph with its activations and the weights of its layers rounded.

    ``encodings`` are by value name; a value that has none stays as it is. ``rounded_weights``
    names the weights that are stored in 8 bits, one scale for each row.
    """

    def __init__(
        self,
        read_weight: WeightReader,
        encodings: Mapping[str, ActivationEncoding],
        rounded_weights: frozenset[str],
    ) -> None:
        def read(weight: Weight) -> Array:
            array = read_weight(weight)
            return round_rows(array) if weight.name in rounded_weights else array

        self._interpreter = ReferenceInterpreter(read)
        self._encodings = encodings

    def run(
        self, graph: Graph, inputs: Mapping[str, Array], after_node: AfterNode | None = None
    ) -> dict[str, Array]:
        """All outputs by name; ``after_node`` sees each node's rounded results."""
        given = {name: self._round(name, np.asarray(array)) for name, array in inputs.items()}

        def rounded(node: Node, results: list[Array]) -> list[Array]:
            kept = [
                self._round(v.name, array) for v, array in zip(node.outputs, results, strict=True)
            ]
            return after_node(node, kept) if after_node else kept

        return self._interpreter.run(graph, given, after_node=rounded)

    def _round(self, name: str, array: Array) -> Array:
        encoding = self._encodings.get(name)
        return encoding.round_trip(array) if encoding else array


def signal_to_noise(signal: Array, noisy: Array) -> tuple[float, float]:
    """The power of a signal and that of what differs from it, as sums of squares."""
    wide = signal.astype(np.float64)
    return float((wide**2).sum()), float(((noisy - wide) ** 2).sum())
