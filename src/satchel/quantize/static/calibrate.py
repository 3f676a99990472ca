"""Runs a float graph over examples and measures the range of every activation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.encodings.encoding import Encoding
from satchel.encodings.packing import pack_matrix
from satchel.errors import RecipeError
from satchel.graph.ir import DType, Graph, Node, Value, Weight, largest
from satchel.graph.reference import ReferenceInterpreter, WeightReader
from satchel.quantize.static.encoding import ActivationEncoding
from satchel.quantize.static.heads import HeadObserver, HeadSteps, attention_inputs
from satchel.quantize.static.observers import Observer, make_observer

MOST_AT_ONCE = 1 << 29  # bytes of values that are seen in one run

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
    native: bool = False,
    view: Callable[[str, Array], Array] = lambda _, array: array,
    heads: dict[str, HeadSteps] | None = None,
) -> dict[str, ActivationEncoding]:
    """The encoding of every float activation that is finite, by the value's name.

    One that has no numbers in any example, as the boxes of an image without any, has no range.

    The reference interpreter runs the graph, or the CPU backend, which is faster. ``view`` gives
    what of a value, by its name, counts for its range. ``heads`` takes the steps of what attention
    could read in 8 bits, by the value's name.
    """
    make = make_observer(observer)
    targets = calibration_targets(graph)
    watched: dict[str, Observer] = {v.name: make() for v in targets}
    by_head = {name: HeadObserver(make, n) for name, n in attention_inputs(graph).items()}
    inputs = [v for v in graph.inputs if v.name in watched]
    seen: set[str] = set()
    count = 0
    run = (
        native_runner(graph, read_weight, targets)
        if native
        else reference_runner(graph, read_weight)
    )
    for example in examples:
        for value in inputs:
            array = np.asarray(example[value.name])
            if np.isinf(array).any():
                watched.pop(value.name, None)
            elif value.name in watched:
                watched[value.name].observe(finite(value.name, array))
                seen.add(value.name)
        for name, array in run(example):
            if not array.size:
                continue
            if name in watched and np.isinf(array).any():
                del watched[name]  # a mask: it has no range, and stays in floats
            elif name in watched:
                watched[name].observe(finite(name, view(name, array)))
                seen.add(name)
            if heads is not None and name in by_head:
                by_head[name].observe(array)
        count += 1
    if not count:
        raise RecipeError(
            "there is nothing to calibrate on", "Give some examples of the model's input."
        )
    if heads is not None:
        heads |= {name: one.steps() for name, one in by_head.items() if name in seen}
    return {name: one.encoding(bits, signed) for name, one in watched.items() if name in seen}


Runner = Callable[[Example], Iterable[tuple[str, Array]]]  # values by name


def reference_runner(graph: Graph, read_weight: WeightReader) -> Runner:
    """Runs a graph in the reference and gives all its values, by name."""
    interpreter = ReferenceInterpreter(read_weight)

    def run(example: Example) -> list[tuple[str, Array]]:
        seen: list[tuple[str, Array]] = []

        def keep(node: Node, results: list[Array]) -> list[Array]:
            seen.extend((v.name, a) for v, a in zip(node.outputs, results, strict=True))
            return results

        interpreter.run(graph, example, after_node=keep)
        return seen

    return run


def native_runner(graph: Graph, read_weight: WeightReader, targets: Sequence[Value]) -> Runner:
    """Runs a graph on the CPU backend and gives some of its values, by name."""
    from satchel.program.writer import ProgramWriter
    from satchel.runtime.program import load

    parts = list(_parts(graph, targets))
    weights = [w for part in parts for w in part.weights()]
    encodings = {w.name: Encoding("f32" if w.role == "vector" else "matrix_f32") for w in weights}

    def encode(weight: Weight, encoding: Encoding) -> Iterator[bytes]:
        array = np.ascontiguousarray(read_weight(weight), np.float32)
        if encoding.is_matrix:
            array = pack_matrix("f32", array)[0]
        yield array.tobytes()

    with TemporaryDirectory() as folder:
        path = Path(folder) / "calibrate.satchel"
        ProgramWriter(parts, encodings).write(path, encode, lambda: {})
        program = load(path)  # mapped, so it outlives its folder

    def run(example: Example) -> Iterator[tuple[str, Array]]:
        for part in parts:
            method = program.method(part.name)
            needed = {name: example[name] for name in method.inputs}
            yield from zip(method.outputs, method.run(**needed), strict=True)

    return run


def _parts(graph: Graph, targets: Sequence[Value]) -> Iterator[Graph]:
    """The graph up to some of the values, as many as memory may hold at once, and so on.

    What a method has as outputs is all there when it ends. One with states runs once as a whole.
    """
    given = {id(v) for v in graph.inputs}
    waiting = [v for v in targets if id(v) not in given]
    makers = {id(v): place for place, node in enumerate(graph.nodes) for v in node.outputs}
    sizes = {id(v): math.prod(largest(v.shape)) * v.dtype.size for v in waiting}
    if graph.states or sum(sizes.values()) <= MOST_AT_ONCE:
        yield Graph(graph.name, graph.inputs, waiting, graph.nodes, graph.states, graph.initial)
        return
    waiting.sort(key=lambda v: makers[id(v)])
    number = 0
    while waiting:
        together = np.cumsum([sizes[id(v)] for v in waiting])
        count = max(1, int(np.searchsorted(together, MOST_AT_ONCE, side="right")))
        seen, waiting = waiting[:count], waiting[count:]
        nodes = graph.nodes[: makers[id(seen[-1])] + 1]
        yield Graph(f"{graph.name}_{number}", graph.inputs, seen, nodes)
        number += 1


def finite(name: str, array: Array) -> Array:
    """The array, unless it holds something that no range can be taken from."""
    if not np.isfinite(array).all():
        place = [int(i) for i in np.argwhere(~np.isfinite(array))[0]]
        raise RecipeError(
            f"the calibration data gives {array[tuple(place)]} in {name} at {place}",
            "Leave out examples that hold NaN or infinities.",
        )
    return array
