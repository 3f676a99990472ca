"""The plain numpy interpreter of a graph: slow, obvious, the truth for every backend."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.errors import ExecutionError
from satchel.graph.ir import Graph, Node, Sym, Value, Weight, largest
from satchel.graph.ops import find_op

Array = NDArray[Any]
WeightReader = Callable[[Weight], Array]
# Sees a node and the arrays it is about to read, and returns those that it shall read.
BeforeNode = Callable[[Node, list[Array | None]], list[Array | None]]
# Sees a node and the arrays it made, and returns those that the next nodes shall read.
AfterNode = Callable[[Node, list[Array]], list[Array]]


class ReferenceInterpreter:
    """Runs graphs that share states, one call after the other.

    ``read_weight`` gives each weight as the numbers that the graph should compute with: from
    the checkpoint for the float run, quantised and dequantised for the other. Caches are kept for
    so many ``sequences``. A model that may not fit into memory is read again for each use of a
    weight, without ``keeps_weights``.
    """

    def __init__(
        self, read_weight: WeightReader, sequences: int = 1, keeps_weights: bool = True
    ) -> None:
        self._keeps_weights = keeps_weights
        self._read_weight = read_weight
        self._sequences = sequences
        self._weights: dict[str, Array] = {}
        self.states: dict[str, Array] = {}

    def run(
        self,
        graph: Graph,
        inputs: Mapping[str, Array],
        before_node: BeforeNode | None = None,
        after_node: AfterNode | None = None,
    ) -> dict[str, Array]:
        """All outputs by name."""
        for name, type in graph.states.items():
            if name not in self.states:
                each = (self._sequences,) if name in graph.caches else ()
                zeros = np.zeros(each + largest(type.shape), type.dtype.numpy)
                self.states[name] = graph.initial.get(name, zeros).copy()
        computed: dict[int, Array] = {}
        sizes: dict[str, int] = {}
        for value in graph.inputs:
            if value.name not in inputs:
                raise ExecutionError(f"the input {value.name!r} is missing")
            array = np.asarray(inputs[value.name], dtype=value.dtype.numpy)
            check_shape(value, array.shape, sizes)
            computed[id(value)] = array
        last = last_readers(graph)
        for place, node in enumerate(graph.nodes):
            arrays = [self._array(v, computed) for v in node.inputs]
            if before_node:
                arrays = before_node(node, arrays)
            with np.errstate(all="ignore"):  # infinities and NaN are results like others
                results = find_op(node.op).reference(arrays, node.attrs)  # type: ignore[arg-type]
            # numpy makes plain numbers of arrays without dimensions
            arrays_made = [np.asarray(made) for made in results]
            if after_node:
                arrays_made = after_node(node, arrays_made)
            for value, result in zip(node.outputs, arrays_made, strict=True):
                if value.state:
                    self.states[value.state] = result
                computed[id(value)] = result
            for read in last.get(place, ()):
                computed.pop(read, None)
        # Copies: an array of a state changes with the next call.
        return {v.name: computed[id(v)].copy() for v in graph.outputs}

    def _array(self, value: Value | None, computed: Mapping[int, Array]) -> Array | None:
        if value is None:
            return None
        if value.weight:
            name = value.weight.name
            if not self._keeps_weights:
                return self._read_weight(value.weight)
            if name not in self._weights:
                self._weights[name] = self._read_weight(value.weight)
            return self._weights[name]
        if value.constant is not None:
            return value.constant
        if value.state:
            return self.states[value.state]
        return computed[id(value)]


def last_readers(graph: Graph) -> dict[int, list[int]]:
    """By the place of a node, the ids of the values that nothing reads after it."""
    kept = {id(value) for value in graph.outputs}
    last: dict[int, int] = {}
    for place, node in enumerate(graph.nodes):
        for value in (*node.outputs, *node.inputs):
            if value is not None and id(value) not in kept:
                last[id(value)] = place
    found: dict[int, list[int]] = {}
    for value_id, place in last.items():
        found.setdefault(place, []).append(value_id)
    return found


def check_shape(value: Value, shape: tuple[int, ...], sizes: dict[str, int]) -> None:
    """Bind the symbols of an input's type to a real shape, or say what does not fit."""
    fits = len(shape) == len(value.shape)
    for want, have in zip(value.shape, shape, strict=False):
        if isinstance(want, Sym) and want.base != want.name:
            continue  # what it is computed from decides
        if isinstance(want, Sym):
            fits = fits and 1 <= have <= want.maximum and sizes.setdefault(want.name, have) == have
        else:
            fits = fits and want == have
    if not fits:
        raise ExecutionError(f"the input {value.name!r} must be {value.type}, not {list(shape)}")
