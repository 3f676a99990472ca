"""Rows of the op table: 8-bit values between integer layers, against torch step by step."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from satchel.graph.ir import DType, Sym
from support.arrays import integers, normal
from support.op_case import Constant, Input, OpCase, case

S = Sym("S", 9)
_exact = partial(case, tolerance=0)
OUT = {"out_scale": 0.05, "out_zero": 100}
PAIR = {"a_scale": 0.02, "a_zero": 128, "b_scale": 0.03, "b_zero": 7, **OUT}


def codes(*shape: int, seed: object = 0) -> np.ndarray:
    return integers(*shape, below=256, seed=seed).astype(np.uint8)


def _code(t: Any, x: Any, scale: float, zero: int) -> Any:
    inverse = float(np.float32(1) / np.float32(scale))
    steps = (x.float() * inverse).nan_to_num(0.0, 1e9, -1e9).round()
    return (steps + zero).clamp(0, 255).to(t.uint8)


def _number(x: Any, scale: float, zero: int) -> Any:
    return (x.float() - zero) * float(np.float32(scale))


def _convert_rows() -> list[OpCase]:
    special = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, 0.025, 0.075, -0.025], np.float32)
    halves = np.arange(-60, 60, dtype=np.float32) / 2
    step = {"scale": 0.05, "zero": 17}
    to_codes = lambda t, x: _code(t, x, 0.05, 17)  # noqa: E731
    to_numbers = lambda t, x: _number(x, 0.05, 17)  # noqa: E731
    rows = [
        _exact("quantize", "special", [special], to_codes, **step),
        _exact("quantize", "scalar", [normal()], to_codes, **step),
        _exact("quantize", "many", [normal(3, 5003, scale=5)], to_codes, **step),
        _exact("quantize", "halves", [halves], lambda t, x: _code(t, x, 1.0, 9), scale=1, zero=9),
        _exact("dequantize", "all", [np.arange(256, dtype=np.uint8)], to_numbers, **step),
        _exact("dequantize", "many", [codes(2, 3, 5003)], to_numbers, **step),
    ]
    for op, dtype, oracle, make in (
        ("quantize", DType.f32, to_codes, normal),
        ("dequantize", DType.u8, to_numbers, codes),
    ):
        calls = [[make(n, 4)] for n in (9, 1)]
        rows.append(_exact(op, "symbolic", [Input((S, 4), dtype)], oracle, calls=calls, **step))
    table = Constant(codes(256, seed="table"))
    look = lambda t, x, table: table[x.long()]  # noqa: E731
    rows += [
        _exact("lookup", "all", [np.arange(256, dtype=np.uint8), table], look),
        _exact("lookup", "many", [codes(2, 7, 3001), table], look),
    ]
    calls = [[codes(n, 4)] for n in (9, 1)]
    slots = [Input((S, 4), DType.u8), table]
    return [*rows, _exact("lookup", "symbolic", slots, look, calls=calls)]


def _pair_rows() -> list[OpCase]:
    rows = []
    for op, function in (("qadd", lambda a, b: a + b), ("qmul", lambda a, b: a * b)):

        def oracle(t: Any, a: Any, b: Any, f: Any = function, relu: bool = False) -> Any:
            total = f(_number(a, 0.02, 128), _number(b, 0.03, 7))
            return _code(t, total.relu() if relu else total, 0.05, 100)

        for left, right in (
            ((), ()),
            ((7,), (7,)),
            ((2, 5, 3, 6), (2, 1, 1, 6)),
            ((1, 6), (4, 1, 1)),
            ((3, 9001), (3, 9001)),
            ((2, 9001), (1, 9001)),
            ((1, 14, 15, 40), (1, 1, 1, 40)),  # a row that meets all, shared out among threads
            ((1, 1, 1, 50), (1, 14, 15, 50)),
            ((1, 14, 1, 33), (1, 14, 15, 33)),  # rows that meet some
        ):
            a, b = codes(*left), codes(*right, seed=1)
            rows.append(_exact(op, f"{left}_{right}", [a, b], oracle, **PAIR))
        both = [codes(33), codes(33, seed=1)]
        relu = partial(oracle, relu=True)
        rows.append(_exact(op, "relu", both, relu, activation="relu", **PAIR))
        calls = [[codes(n, 4), codes(1, 4, seed=1)] for n in (9, 1)]
        slots = [Input((S, 4), DType.u8), Input((1, 4), DType.u8)]
        rows.append(_exact(op, "symbolic", slots, oracle, calls=calls, **PAIR))
    return rows


def _mean_rows() -> list[OpCase]:
    rows = []
    steps = {"x_scale": 0.02, "x_zero": 31, **OUT}
    for shape, axes, keep in (
        ((2, 7, 5, 3), (1, 2), 1),
        ((1, 9, 9, 70), (1, 2), 0),
        ((4, 6), (1,), 0),
        ((4, 6), (0,), 1),
        ((3, 4, 5), (0, 2), 0),
        ((5,), (0,), 0),
        ((1, 60, 45, 70), (1, 2), 1),  # more than 16 bits hold, in parts
        ((2, 300, 65), (1,), 0),
        ((140, 3, 64), (0,), 0),
    ):

        def oracle(t: Any, x: Any, axes: Any = axes, keep: int = keep) -> Any:
            total = (x.long() - 31).sum(axes, keepdim=bool(keep))
            count = x.numel() // max(1, total.numel())
            factor = float(np.float32(np.float32(0.02) / np.float32(count)))
            return _code(t, total.float() * factor, 0.05, 100)

        attrs = {"axes": axes, "keepdims": keep, **steps}
        rows.append(_exact("qmean", f"{shape}_{axes}", [codes(*shape)], oracle, **attrs))
    return rows


ROWS = [*_convert_rows(), *_pair_rows(), *_mean_rows()]
