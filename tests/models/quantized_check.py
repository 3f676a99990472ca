"""A quantised program against the reference's run of the same graphs and stored weights.

Rounding turns a difference in the last bit into a whole step whenever a value lies on the border
between two codes; in a quantised model such steps add up within a few layers, between any two
implementations. So the reference follows: wherever a number is rounded (activations of 8 and 16
bits, caches of 16 and 8 bits) it checks that the native core was about to round the same number, up
to float noise, and then takes the native core's side of the border. All else it computes by itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.exporter import ExportOptions, prepare_export
from satchel.graph.ir import Graph, Node, Value
from satchel.graph.ops import Trait, ops_with
from satchel.graph.reference import ReferenceInterpreter
from satchel.runtime.program import Program

Array = NDArray[Any]
Logits = NDArray[np.float32]

# Of a row's largest magnitude: a thousandth of a step of 8 bits, a third of one of 16.
NOISE = 1e-5


def rounded_input(node: Node) -> int | None:
    """Which input of a node it rounds to fewer bits, if any."""
    rounds = node.op in ops_with(Trait.rounds_input)
    if rounds and node.attrs.get("activations") in ("int8", "int16"):
        return 0
    return 1 if node.op == "cache_write" else None


class QuantizedPair:
    """An exported program, and the reference that follows it.

    Besides the program a second one is written from the same graphs, which also returns
    everything that is going to be rounded.
    """

    def __init__(self, source: Path, output: Path, **options: Any) -> None:
        self.program = Program(prepare_export(source, ExportOptions(**options)).run(output))
        self.encodings = {w["name"]: (w["encoding"], w["group"]) for w in self.program.weights}
        job = prepare_export(source, ExportOptions(**options))
        for graph in job.graphs:
            _return_what_is_rounded(graph)
        self.graphs = {graph.name: graph for graph in job.graphs}
        traced = Program(job.run(output.with_suffix(".traced.satchel")))
        self._plain, self._traced = self.program.instance(threads=2), traced.instance(threads=2)
        self._reference = ReferenceInterpreter(lambda weight: traced.weight(weight.name))

    def run(self, method: str, **inputs: Any) -> tuple[Logits, Logits]:
        """The program's logits and those of the reference that follows it."""
        (native,) = self._plain.method(method).run(**inputs)
        called = self._traced.method(method)
        trace = dict(zip(called.outputs, called.run(**inputs), strict=True))
        np.testing.assert_array_equal(trace["logits"], native)  # the same program otherwise

        def follow(node: Node, arrays: list[Array | None]) -> list[Array | None]:
            place = rounded_input(node)
            if place is None:
                return arrays
            value, mine = node.inputs[place], arrays[place]
            assert value is not None and mine is not None
            theirs = trace.get(value.name, mine)
            allowed = NOISE * np.abs(mine).max(axis=-1, keepdims=True)
            off = np.abs(theirs - mine) - allowed
            assert (off <= 0).all(), f"{node!r}: {value.name} is off by {off.max():.3g}"
            return [*arrays[:place], theirs, *arrays[place + 1 :]]

        arrays = dict(zip(called.inputs, called.convert(**inputs), strict=True))
        return native, self._reference.run(self.graphs[method], arrays, follow)["logits"]

    def run_all(self, tokens: NDArray[np.int32], prefill: int) -> tuple[Logits, Logits]:
        """Logits after every token: one block, then one by one."""
        block = {"tokens": tokens[:prefill], "position": [0], "rows": np.arange(prefill)}
        pairs = [self.run("prefill_forward", **block)]
        for at in range(prefill, len(tokens)):
            pairs.append(self.run("kv_forward", tokens=tokens[at : at + 1], position=[at]))
        native, reference = zip(*pairs, strict=True)
        return np.concatenate(native), np.concatenate(reference)


def _return_what_is_rounded(graph: Graph) -> None:
    made = {id(v) for node in graph.nodes for v in node.outputs}
    rounded: dict[int, Value] = {}
    for node in graph.nodes:
        place = rounded_input(node)
        value = None if place is None else node.inputs[place]
        if value is not None and id(value) in made:
            rounded[id(value)] = value
    graph.outputs += [v for v in rounded.values() if v not in graph.outputs]
    graph.check()
