"""Runs a float graph over examples and measures the range of every activation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.errors import RecipeError
from satchel.graph.ir import DType, Graph, Node, Value
from satchel.graph.reference import ReferenceInterpreter, WeightReader
from satchel.quantize.static.encoding import ActivationEncoding
from satchel.quantize.static.observers import Observer, make_observer

Array = NDArray[Any]
Example = Mapping[str, Array]  # a method's inputs by name


def calibration_targets(graph: Graph) -> list[Value]:
    """The values that may be quantised: all float ones that a call computes or is given."""
    return [
        v
        for v in graph.values()
        if v.dtype == DType.f32 and v.weight is None and v.constant is None and v.state is None
    ]


def calibrate(
    graph: Graph,
    read_weight: WeightReader,
    examples: Iterable[Example],
    observer: str = "minmax",
    bits: int = 8,
    signed: bool = False,
) -> dict[str, ActivationEncoding]:
    """The encoding of every float activation, by the value's name."""
    make = make_observer(observer)
    watched: dict[int, Observer] = {id(v): make() for v in calibration_targets(graph)}
    interpreter = ReferenceInterpreter(read_weight)
    count = 0

    def watch(node: Node, results: list[Array]) -> list[Array]:
        for value, array in zip(node.outputs, results, strict=True):
            if id(value) in watched:
                watched[id(value)].observe(finite(value.name, array))
        return results

    for example in examples:
        for value in graph.inputs:
            if id(value) in watched:
                watched[id(value)].observe(finite(value.name, np.asarray(example[value.name])))
        interpreter.run(graph, example, after_node=watch)
        count += 1
    if not count:
        raise RecipeError(
            "there is nothing to calibrate on", "Give some examples of the model's input."
        )
    named = {id(v): v.name for v in graph.values()}
    return {named[key]: seen.encoding(bits, signed) for key, seen in watched.items()}


def finite(name: str, array: Array) -> Array:
    """The array, unless it holds something that no range can be taken from."""
    if not np.isfinite(array).all():
        place = [int(i) for i in np.argwhere(~np.isfinite(array))[0]]
        raise RecipeError(
            f"the calibration data gives {array[tuple(place)]} in {name} at {place}",
            "Leave out examples that hold NaN or infinities.",
        )
    return array
