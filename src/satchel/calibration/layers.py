"""Runs the float model layer by layer: one layer's weights are in memory, and all hidden states.

Every linear layer's input is seen on the way. Nothing is rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.calibration.watch import InputWatch, SeenInput
from satchel.errors import CheckpointError
from satchel.graph.builder import GraphBuilder
from satchel.graph.ir import DType, Graph, Sym, Value, Weight
from satchel.graph.passes import optimize
from satchel.graph.reference import ReferenceInterpreter
from satchel.models.base import Decoder, Step

Array = NDArray[Any]
ReadRows = Callable[[Weight, int, int], Array]  # rows from … to … of a weight
Told = Callable[[int, int], None]

# The part of the statistics that the first token of a window makes up. All others attend to it,
# so an error there is an error everywhere; as one token of many it would not count.
FIRST_TOKEN_SHARE = 0.05
_ROWS = 4096  # of the embedding, read at once


def token_weights(tokens: int) -> Array:
    """How much each token of a window counts.

    >>> token_weights(96).round(2).tolist()[:3]
    [5.0, 1.0, 1.0]
    """
    weights = np.ones(tokens)
    weights[0] = max(1.0, FIRST_TOKEN_SHARE / (1 - FIRST_TOKEN_SHARE) * (tokens - 1))
    return weights


def layer_inputs(
    model: Decoder,
    read: ReadRows,
    windows: Sequence[Sequence[int]],
    told: Told = lambda _done, _total: None,
    shown: Sequence[Array] = (),
) -> Iterator[SeenInput]:
    """What every linear layer of the model sees of some windows of tokens, in order.

    ``shown`` are windows of what stands for images, [rows, hidden] each.
    """
    longest = max([*map(len, windows), *map(len, shown)])
    states = [*_embed(model, read, windows, longest), *shown]
    for index in range(model.layers):
        told(index, model.layers)
        states, seen = _run(_layer_graph(model, index, longest), read, states)
        yield from seen
        _check_finite(states, f"layer {index}")
    _, seen = _run(_head_graph(model, longest), _without_head(read), states)
    yield from seen
    told(model.layers, model.layers)


def _run(
    graph: Graph, read: ReadRows, states: Sequence[Array]
) -> tuple[list[Array], list[SeenInput]]:
    interpreter = ReferenceInterpreter(lambda weight: read(weight, 0, weight.shape[0]))
    watch = InputWatch([graph], token_weights)
    results = []
    for state in states:
        watch.begin()
        inputs = {"x": state, **_where(len(state))}
        results.append(interpreter.run(graph, inputs, watch)["out"])
    return results, watch.finish()


def _start(model: Decoder, name: str, longest: int) -> tuple[Step, Value]:
    b = GraphBuilder(name)
    tokens = Sym("S", longest)
    x = b.input("x", (tokens, model.hidden))
    return Step.begin(b, tokens, longest, DType.f32), x


def _where(tokens: int) -> dict[str, Array]:
    """A window is one sequence, from its beginning."""
    return {"sequence": np.zeros(tokens, np.int32), "position": np.arange(tokens, dtype=np.int32)}


def _layer_graph(model: Decoder, index: int, longest: int) -> Graph:
    step, x = _start(model, f"layer_{index}", longest)
    step.builder.output(model.layer(step, x, index), "out")
    return optimize(step.builder.finish())


def _head_graph(model: Decoder, longest: int) -> Graph:
    step, x = _start(model, "head", longest)
    step.builder.output(model.logits(step, x), "out")
    return optimize(step.builder.finish())


def _without_head(read: ReadRows) -> ReadRows:
    """The logits are not needed, only what the head sees, so one row of zeros stands for it."""

    def stand_in(weight: Weight, start: int, stop: int) -> Array:
        if weight.role in ("head", "embedding"):
            return np.zeros((1, weight.shape[1]), np.float32)
        return read(weight, start, stop)

    return stand_in


def _embed(
    model: Decoder, read: ReadRows, windows: Sequence[Sequence[int]], longest: int
) -> list[Array]:
    """The hidden states before the first layer. Only the rows that are used are kept."""
    used, places = np.unique(np.concatenate([np.asarray(w) for w in windows]), return_inverse=True)
    b = GraphBuilder("embed")
    ids = b.input("tokens", (Sym("S", longest),), DType.i32)
    step = Step.begin(b, Sym("S", longest), longest, DType.f32)
    b.output(model.embed(step, ids), "out")
    graph = optimize(b.finish())

    def some_rows(weight: Weight) -> Array:
        if weight.role != "embedding":
            return read(weight, 0, weight.shape[0])
        parts = []
        for first in range(0, weight.shape[0], _ROWS):
            last = min(first + _ROWS, weight.shape[0])
            wanted = used[(used >= first) & (used < last)]
            if len(wanted):
                parts.append(read(weight, first, last)[wanted - first])
        return np.concatenate(parts)

    interpreter = ReferenceInterpreter(some_rows)
    states, at = [], 0
    for window in windows:
        tokens = places[at : at + len(window)]
        at += len(window)
        inputs: dict[str, Array] = {"tokens": tokens, **_where(len(tokens))}
        states.append(interpreter.run(graph, inputs)["out"])
    return states


def _check_finite(states: Sequence[Array], where: str) -> None:
    if not all(np.isfinite(state).all() for state in states):
        raise CheckpointError(
            f"the float model computes something that is not finite in {where}",
            "The checkpoint is damaged; fetch it again.",
        )
