"""Adds up what the linear layers of graphs see while they run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.graph.ir import Graph, Node, Weight
from satchel.graph.ops import Trait, ops_with
from satchel.quantize.moments import InputMoments, MomentsSum

Array = NDArray[Any]
Weigh = Callable[[int], Array]  # how much each of so many rows counts
MOST_BYTES = 1 << 30  # of sums that are kept at a time


@dataclass(frozen=True)
class SeenInput:
    """An input of linear layers, and the names of the weights that it is multiplied with."""

    weights: tuple[str, ...]
    moments: InputMoments


class InputWatch:
    """Sees nodes before they run (:data:`~satchel.graph.reference.BeforeNode`).

    ``begin`` comes before each run of a graph. Of many large inputs ``passes`` are made, each of
    which sees some of them, so that their sums do not fill the memory.
    """

    def __init__(self, graphs: Sequence[Graph], weigh: Weigh = np.ones) -> None:
        self._weigh = weigh
        self._layers = ops_with(Trait.rounds_input)
        self._users: dict[int, list[str]] = {}  # weights by the value that they multiply
        self._channels: dict[int, int] = {}
        for graph in graphs:
            for node in graph.nodes:
                if node.op in self._layers:
                    weight = _weight(node)
                    self._users.setdefault(id(node.inputs[0]), []).append(weight.name)
                    self._channels[id(node.inputs[0])] = weight.shape[-1]
        self._sums: dict[int, MomentsSum] = {}
        self._seen: set[int] = set()
        self.wanted = set(self._users)

    def begin(self) -> None:
        self._seen.clear()

    def __call__(self, node: Node, arrays: list[Array | None]) -> list[Array | None]:
        key, x = id(node.inputs[0]), arrays[0]
        if node.op in self._layers and key in self.wanted and key not in self._seen:
            assert x is not None
            self._seen.add(key)
            rows = x.reshape(-1, x.shape[-1])
            total = self._sums.setdefault(key, MomentsSum(x.shape[-1]))
            total.add(rows, self._weigh(len(rows)))
        return arrays

    def passes(self) -> list[set[int]]:
        """Parts of the inputs, one of which is to be ``wanted`` while all graphs run."""
        parts: list[set[int]] = [set()]
        size = 0
        for key, channels in self._channels.items():
            needed = 8 * channels**2
            if parts[-1] and size + needed > MOST_BYTES:
                parts.append(set())
                size = 0
            parts[-1].add(key)
            size += needed
        return parts

    def finish(self) -> list[SeenInput]:
        """What was seen since the last time."""
        sums, self._sums = self._sums, {}
        return [SeenInput(tuple(self._users[key]), total.finish()) for key, total in sums.items()]


def _weight(node: Node) -> Weight:
    value = node.inputs[1]
    assert value is not None and value.weight is not None
    return value.weight
