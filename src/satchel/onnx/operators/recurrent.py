"""RNN, GRU and LSTM, written out step by step."""

from __future__ import annotations

import numpy as np

from satchel.graph.ir import Value
from satchel.onnx.operators.registry import Call, known_shape, onnx_operator
from satchel.torch.lowering import Lowering
from satchel.torch.operator_error import OperatorError
from satchel.torch.operators.linear import linear

_USUAL = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}
_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


@onnx_operator("RNN", "GRU", "LSTM")
def recurrent(
    low: Lowering,
    call: Call,
    x: Value,
    w: Value,
    r: Value,
    b: Value | None = None,
    lengths: Value | None = None,
    h: Value | None = None,
    c: Value | None = None,
    p: Value | None = None,
) -> list[Value | None]:
    kind = call.name
    if call.get("layout", 0):
        raise OperatorError(f"{kind} with the batch first")
    if lengths is not None and lengths.constant is None:
        raise OperatorError(f"{kind} with lengths that are computed")
    directions = 2 if call.get("direction", "forward") == "bidirectional" else 1
    usual = _USUAL[kind] * directions
    given = call.get("activations")
    if (given is not None and list(given) != usual) or call.get("clip") or call.get("input_forget"):
        raise OperatorError(f"{kind} with activations {given}")
    steps, batch, _ = known_shape(low, x, kind)
    if lengths is not None and set(np.asarray(lengths.constant).tolist()) != {steps}:
        raise OperatorError(f"{kind} with sequences of different lengths")
    hidden = low.known(r.shape[2], kind)
    outputs, last_h, last_c = [], [], []
    for number in range(directions):
        backwards = number == 1 or call.get("direction") == "reverse"
        weights = [_own(low, v, number) for v in (w, r)]
        both = None if b is None else _own(low, b, number)
        peep = None if p is None else _own(low, p, number)
        state = _start(low, h, number, batch, hidden)
        memory = _start(low, c, number, batch, hidden) if kind == "LSTM" else None
        order = list(range(steps))[:: -1 if backwards else 1]
        made: dict[int, Value] = {}
        for at in order:
            row = low.reshape(low.slice(x, 0, at, at + 1), x.shape[1:])
            state, memory = _step(low, call, row, weights, both, peep, state, memory)
            made[at] = state
        rows = [low.reshape(made[at], (1, 1, batch, hidden)) for at in range(steps)]
        outputs.append(low.concat(rows, 0))
        last_h.append(low.reshape(state, (1, batch, hidden)))
        if memory is not None:
            last_c.append(low.reshape(memory, (1, batch, hidden)))
    ends: list[Value | None] = [low.concat(outputs, 1), low.concat(last_h, 0)]
    return [*ends, low.concat(last_c, 0) if last_c else None]


def _own(low: Lowering, value: Value, number: int) -> Value:
    return low.reshape(low.slice(value, 0, number, number + 1), value.shape[1:])


def _start(low: Lowering, value: Value | None, number: int, batch: int, hidden: int) -> Value:
    if value is not None:
        return _own(low, value, number)
    return low.constant(np.zeros((batch, hidden), np.float32), "start")


def _part(low: Lowering, value: Value, axis: int, number: int, hidden: int) -> Value:
    return low.slice(value, axis, number * hidden, (number + 1) * hidden)


def _step(
    low: Lowering,
    call: Call,
    x: Value,
    weights: list[Value],
    both: Value | None,
    peep: Value | None,
    h: Value,
    c: Value | None,
) -> tuple[Value, Value | None]:
    count = _GATES[call.name]
    hidden = low.known(weights[1].shape[1], call.name)
    biases: list[Value | None] = [None, None]
    if both is not None:
        biases = [_part(low, both, 0, i, count * hidden) for i in range(2)]
    given = linear(low, x, weights[0], biases[0])
    if call.name == "GRU":
        return _gru(low, call, given, weights[1], biases[1], h, hidden), None
    total = low.add(given, linear(low, h, weights[1], biases[1]))
    if call.name == "RNN":
        return low.tanh(total), None
    assert c is not None
    gates = [_part(low, total, 1, i, hidden) for i in range(4)]  # input, output, forget, cell
    peeps = None if peep is None else [_part(low, peep, 0, i, hidden) for i in range(3)]

    def seen(number: int, memory: Value) -> Value:
        return (
            gates[number]
            if peeps is None
            else low.add(gates[number], low.mul(peeps[number], memory))
        )

    kept = low.mul(low.sigmoid(seen(2, c)), c)
    new = low.add(kept, low.mul(low.sigmoid(seen(0, c)), low.tanh(gates[3])))
    return low.mul(low.sigmoid(seen(1, new)), low.tanh(new)), new


def _gru(
    low: Lowering, call: Call, given: Value, r: Value, bias: Value | None, h: Value, hidden: int
) -> Value:
    parts = [_part(low, given, 1, i, hidden) for i in range(3)]  # update, reset, new

    def of_state(number: int, state: Value) -> Value:
        own = None if bias is None else _part(low, bias, 0, number, hidden)
        return linear(low, state, _part(low, r, 0, number, hidden), own)

    update = low.sigmoid(low.add(parts[0], of_state(0, h)))
    reset = low.sigmoid(low.add(parts[1], of_state(1, h)))
    if call.get("linear_before_reset", 0):
        new = low.tanh(low.add(parts[2], low.mul(reset, of_state(2, h))))
    else:
        new = low.tanh(low.add(parts[2], of_state(2, low.mul(reset, h))))
    rest = low.affine(update, scale=-1.0, shift=1.0)
    return low.add(low.mul(rest, new), low.mul(update, h))
