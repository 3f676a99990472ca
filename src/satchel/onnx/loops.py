"""Graphs that are run several times: written out, a turn behind the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from satchel.graph.ir import Value
from satchel.onnx.operators.registry import Call, known_array
from satchel.torch.lowering import Lowering, axis_of
from satchel.torch.operator_error import OperatorError

# A graph and its inputs, to its outputs.
Body = Callable[[Any, Sequence[Value | None]], list[Value | None]]
_MOST_TURNS = 1024


def loop(low: Lowering, call: Call, run: Body, inputs: Sequence[Value | None]) -> list[Any]:
    """As often as is known at export; what a turn hands to the next, then what all have made."""
    times, condition, *carried = [*inputs, None, None][: max(2, len(inputs))]
    most = int(known_array(times, "a number of turns").reshape(-1)[0]) if times else _MOST_TURNS + 1
    body, go_on = call.get("body"), low.builder.constant("go_on", np.array(True))
    turns: list[list[Value | None]] = []
    for turn in range(most):
        if condition is not None and not known_array(condition, "the end of a loop").all():
            break
        if turn == _MOST_TURNS:
            raise OperatorError(f"a loop of more than {_MOST_TURNS} turns")
        number = low.builder.constant("turn", np.array(turn, np.int64))
        condition, *made = run(body, [number, go_on, *carried])
        turns.append(made[len(carried) :])
        carried = made[: len(carried)]
    if not turns:
        raise OperatorError("a loop without a turn")
    return [*carried, *(_joined(low, parts, 0) for parts in zip(*turns, strict=True))]


def scan(low: Lowering, call: Call, run: Body, inputs: Sequence[Value | None]) -> list[Any]:
    """A turn for each entry of some inputs' axis; what it makes of them lies along one again."""
    body, count = call.get("body"), call.get("num_scan_inputs")
    if call.version < 9:
        raise OperatorError("of version 8, which has a batch of its own")
    split = len(inputs) - count
    carried, rows = list(inputs[:split]), [v for v in inputs[split:] if v is not None]
    axes = call.get("scan_input_axes", [0] * count)
    backwards = call.get("scan_input_directions", [0] * count)
    places = [axis_of(a, len(row.shape)) for a, row in zip(axes, rows, strict=True)]
    turns_of = [low.known(r.shape[p], "Scan") for r, p in zip(rows, places, strict=True)]
    if max(turns_of) > _MOST_TURNS:
        raise OperatorError(f"a loop of more than {_MOST_TURNS} turns")
    turns: list[list[Value | None]] = []
    for turn in range(turns_of[0]):
        entries = []
        for row, place, back, length in zip(rows, places, backwards, turns_of, strict=True):
            at = length - 1 - turn if back else turn
            rest = (*row.shape[:place], *row.shape[place + 1 :])
            entries.append(low.reshape(low.slice(row, place, at, at + 1), rest))
        made = run(body, [*carried, *entries])
        carried = made[:split]
        turns.append(made[split:])
    outputs = len(turns[0])
    axes = call.get("scan_output_axes", [0] * outputs)
    backwards = call.get("scan_output_directions", [0] * outputs)
    joined = []
    for parts, axis, back in zip(zip(*turns, strict=True), axes, backwards, strict=True):
        joined.append(_joined(low, parts[::-1] if back else parts, axis))
    return [*carried, *joined]


def _joined(low: Lowering, parts: Sequence[Value | None], axis: int) -> Value:
    """Results of turns along a new axis."""
    filled = [part for part in parts if part is not None]
    if len(filled) < len(parts):
        raise OperatorError("a turn that makes nothing")
    rank = len(filled[0].shape) + 1
    at = axis_of(axis, rank)
    rows = [low.reshape(p, (*p.shape[:at], 1, *p.shape[at:])) for p in filled]
    return low.concat(rows, at)
