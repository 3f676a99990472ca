"""Rows of the op table: ops on each element alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from satchel.encodings.encoding import Encoding
from satchel.graph.ir import DType, Sym
from support.arrays import i32, integers, normal, uniform
from support.op_case import Constant, Input, OpCase, Oracle, Stored, case

S = Sym("S", 9)
INF, NAN = np.inf, np.nan

# name: (torch's expression, lowest and highest input, values that need care)
EXTREMES = (0.0, -0.0, 1e-30, -1e-30, 1e4, -1e4, 20.0, -20.0, 100.0, -100.0, NAN)
UNARY: dict[str, tuple[Oracle, float, float, tuple[float, ...]]] = {
    "neg": (lambda t, x: -x, -9, 9, (*EXTREMES, INF)),
    "abs": (lambda t, x: x.abs(), -9, 9, (*EXTREMES, -INF)),
    "exp": (lambda t, x: x.exp(), -20, 20, (0.0, -0.0, 200.0, -200.0, INF, -INF, NAN)),
    "log": (lambda t, x: x.log(), 1e-6, 99, (0.0, 1.0, 1e-38, 3e38, INF, -1.0, NAN)),
    "sqrt": (lambda t, x: x.sqrt(), 0, 99, (0.0, 1e-38, 3e38, INF, -1.0, NAN)),
    "rsqrt": (lambda t, x: x.rsqrt(), 1e-3, 99, (0.0, 1e-38, 3e38, INF, -1.0, NAN)),
    "sin": (lambda t, x: x.sin(), -50, 50, (0.0, 1000.0, -12345.0, INF, NAN)),
    "cos": (lambda t, x: x.cos(), -50, 50, (0.0, 1000.0, -12345.0, INF, NAN)),
    "tan": (lambda t, x: x.tan(), -1.4, 1.4, (0.0, 10.0, INF, NAN)),
    "asin": (lambda t, x: x.asin(), -1, 1, (0.0, 1.0, -1.0, 1.5, NAN)),
    "acos": (lambda t, x: x.acos(), -1, 1, (0.0, 1.0, -1.0, 1.5, NAN)),
    "atan": (lambda t, x: x.atan(), -9, 9, (*EXTREMES, INF, -INF)),
    "sinh": (lambda t, x: x.sinh(), -9, 9, (0.0, 1e-30, 80.0, -80.0, INF, -INF, NAN)),
    "cosh": (lambda t, x: x.cosh(), -9, 9, (0.0, 1e-30, 80.0, -80.0, INF, -INF, NAN)),
    "tanh": (lambda t, x: x.tanh(), -9, 9, (*EXTREMES, INF, -INF)),
    "asinh": (lambda t, x: x.asinh(), -9, 9, (*EXTREMES, INF, -INF)),
    "acosh": (lambda t, x: x.acosh(), 1, 9, (1.0, 1e4, 0.5, INF, NAN)),
    "atanh": (lambda t, x: x.atanh(), -0.99, 0.99, (0.0, 1.0, -1.0, 1.5, NAN)),
    "exp2": (lambda t, x: x.exp2(), -20, 20, (0.0, -0.0, 200.0, -200.0, INF, -INF, NAN)),
    "expm1": (lambda t, x: x.expm1(), -20, 20, (0.0, 1e-8, 200.0, -200.0, INF, -INF, NAN)),
    "log1p": (lambda t, x: x.log1p(), -0.9, 99, (0.0, 1e-8, 1.0, 3e38, INF, -1.0, NAN)),
    "log2": (lambda t, x: x.log2(), 1e-6, 99, (0.0, 1.0, 1e-38, 3e38, INF, -1.0, NAN)),
    "log10": (lambda t, x: x.log10(), 1e-6, 99, (0.0, 1.0, 1e-38, 3e38, INF, -1.0, NAN)),
    "erfinv": (lambda t, x: x.erfinv(), -0.999, 0.999, (0.0, 1e-20, 0.9999999, 1.0, -1.0, 2.0)),
    "trunc": (lambda t, x: x.trunc(), -9, 9, (*EXTREMES, INF, -0.5, 2.5, -2.5)),
    "erf": (lambda t, x: x.erf(), -4, 4, (*EXTREMES, INF, -INF)),
    "floor": (lambda t, x: x.floor(), -9, 9, (*EXTREMES, INF, -0.5, 2.5)),
    "round": (lambda t, x: x.round(), -9, 9, (*EXTREMES, INF, 0.5, 1.5, 2.5, -2.5)),
    "hardsigmoid": (lambda t, x: t.nn.functional.hardsigmoid(x), -9, 9, (*EXTREMES, INF)),
    "hardswish": (lambda t, x: t.nn.functional.hardswish(x), -9, 9, (*EXTREMES, 3.0, -3.0)),
    "relu": (lambda t, x: x.relu(), -9, 9, (*EXTREMES, INF, -INF)),
    "sigmoid": (lambda t, x: x.sigmoid(), -20, 20, (*EXTREMES, INF, -INF)),
    "silu": (lambda t, x: t.nn.functional.silu(x), -20, 20, (*EXTREMES, INF)),
    "gelu": (lambda t, x: t.nn.functional.gelu(x), -9, 9, EXTREMES),
    "gelu_tanh": (
        lambda t, x: t.nn.functional.gelu(x, approximate="tanh"),
        -9,
        9,
        EXTREMES,
    ),
}

BINARY: dict[str, Oracle] = {
    "add": lambda t, a, b: a + b,
    "sub": lambda t, a, b: a - b,
    "mul": lambda t, a, b: a * b,
    "div": lambda t, a, b: a / b,
    "maximum": lambda t, a, b: t.maximum(a, b),
    "minimum": lambda t, a, b: t.minimum(a, b),
    "atan2": lambda t, a, b: t.atan2(a, b),
    "fmod": lambda t, a, b: t.fmod(a, b),
}

BROADCASTS: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((), ()),
    ((5,), ()),
    ((7,), (7,)),
    ((3, 1), (1, 4)),
    ((2, 1, 4), (3, 1)),
    ((1, 3, 1, 5), (2, 3, 4, 5)),
    ((2, 3, 4, 5), (5,)),
    ((3, 5003), (3, 5003)),  # more than one thread's piece
    ((3, 5003), (3, 1)),
)

GATED: dict[str, Oracle] = {
    "silu_mul": lambda t, gate, up: t.nn.functional.silu(gate) * up,
    "gelu_tanh_mul": lambda t, gate, up: t.nn.functional.gelu(gate, approximate="tanh") * up,
}


def _shape_name(*shapes: tuple[Any, ...]) -> str:
    return "_".join("x".join(map(str, shape)) or "scalar" for shape in shapes)


def _unary_rows() -> list[OpCase]:
    rows = []
    for op, (oracle, low, high, special) in UNARY.items():
        for shape in ((), (1,), (37,), (3, 5), (2, 3, 5, 7)):
            # Alone, a result near zero would be measured against itself.
            lowest = max(low, 0.5) if len(shape) < 2 else low
            x = uniform(*shape, low=lowest, high=high, seed=op)
            rows.append(case(op, _shape_name(shape), [x], oracle))
        sizes = [[uniform(n, 5, low=low, high=high, seed=op)] for n in (1, 9, 4)]
        rows.append(case(op, "symbolic", [Input((S, 5))], oracle, calls=sizes))
        for value in special:  # each alone, so that a large one does not hide a small one
            rows.append(case(op, f"at_{value}", [np.full((3,), value, np.float32)], oracle))
    x = normal(3, 5003)
    return [*rows, case("exp", "threads", [x], UNARY["exp"][0])]


def _binary_rows() -> list[OpCase]:
    special = np.array([0.0, 1.0, -1.0, INF, NAN], np.float32)
    rows = []
    for op, oracle in BINARY.items():
        for a, b in BROADCASTS:
            left, right = normal(*a, seed="a"), uniform(*b, low=0.5, high=2, seed="b")
            rows.append(case(op, _shape_name(a, b), [left, right], oracle))
            if a != b:
                rows.append(case(op, _shape_name(b, a), [right, left], oracle))
        calls = [[normal(n, 4), normal(n, 1, seed=1)] for n in (9, 1, 2)]
        rows.append(case(op, "symbolic", [Input((S, 4)), Input((S, 1))], oracle, calls=calls))
        weight = Stored(normal(4, seed="w"), Encoding("f32"))
        rows.append(case(op, "weight", [normal(3, 4), weight], oracle))
        rows.append(case(op, "constant", [Constant(normal(3, 1)), normal(3, 4)], oracle))
        rows.append(
            case(op, "special", [np.repeat(special, 5), np.tile(special, 5)], oracle, tolerance=0)
        )
    return rows


def _whole_rows() -> list[OpCase]:
    a, b = integers(3, 1, 5, below=2**31 - 1), integers(4, 1, below=9, seed=1) - 5
    calls = [[integers(n, 4, below=99), integers(4, below=9)] for n in (9, 1)]
    slots = [Input((S, 4), DType.i32), Input((4,), DType.i32)]
    rows = []
    for op in ("add", "sub", "mul", "maximum", "minimum"):
        rows.append(case(op, "i32", [a, b], BINARY[op], tolerance=0))
        rows.append(case(op, "i32_symbolic", slots, BINARY[op], calls=calls))
    return rows


def _gated_rows() -> list[OpCase]:
    rows = []
    for op, oracle in GATED.items():
        for shape in ((), (1,), (33,), (3, 5), (2, 3, 2, 7), (2, 5003)):
            gate = normal(*shape, seed="gate", scale=4)
            gate = gate if gate.size > 1 else np.asarray(abs(gate))
            rows.append(case(op, _shape_name(shape), [gate, normal(*shape, seed="up")], oracle))
        calls = [[normal(n, 6, scale=4), normal(n, 6, seed=1)] for n in (9, 1)]
        rows.append(case(op, "symbolic", [Input((S, 6)), Input((S, 6))], oracle, calls=calls))
        for value in (0.0, 1e4, -1e4, 100.0, -100.0, 1e-30, NAN):
            gates = np.full((19,), value, np.float32)
            rows.append(case(op, f"at_{value}", [gates, normal(19)], oracle))
    return rows


def _affine(scale: float, shift: float) -> Oracle:
    return lambda t, x: x * float(np.float32(scale)) + float(np.float32(shift))


def _affine_rows() -> list[OpCase]:
    x = normal(3, 7)
    return [
        case("affine", "both", [x], _affine(0.3, -2.5), scale=0.3, shift=-2.5),
        case("affine", "scale", [normal()], _affine(-4, 0), scale=-4),
        case("affine", "shift", [normal(2, 3, 4, 5)], _affine(1, 0.1), shift=0.1),
        case("affine", "neither", [x], _affine(1, 0)),
        case(
            "affine",
            "symbolic",
            [Input((S, 2))],
            _affine(2, 1),
            calls=[[normal(5, 2)]],
            scale=2,
            shift=1,
        ),
    ]


def _clamp_rows() -> list[OpCase]:
    x = np.append(normal(3, 7, scale=3).reshape(-1), np.float32([NAN, INF, -INF]))
    return [
        case("clamp", name, [x], lambda t, x, b=bounds: x.clamp(*b), tolerance=0, **attrs)
        for name, bounds, attrs in (
            ("both", (-1.5, 2), {"low": -1.5, "high": 2.0}),
            ("low", (0.5,), {"low": 0.5}),
            ("high", (None, 0.5), {"high": 0.5}),
            ("point", (1, 1), {"low": 1.0, "high": 1.0}),
        )
    ] + [case("clamp", "neither", [x], lambda t, x: x, tolerance=0)]


def _pow_rows() -> list[OpCase]:
    oracle = lambda t, a, b: a.pow(b)  # noqa: E731
    base, power = uniform(3, 5, low=0.1, high=4), uniform(5, low=-2, high=3)
    special = np.array([0.0, 1.0, -1.0, 2.0, -2.0, INF, NAN], np.float32)
    calls = [[uniform(n, 4, low=0.1, high=4), uniform(n, 1, low=-2, high=2)] for n in (9, 1)]
    return [
        case("pow", "broadcast", [base, power], oracle),
        case("pow", "same", [base, base], oracle),
        case("pow", "special", [np.repeat(special, 7), np.tile(special, 7)], oracle),
        case("pow", "symbolic", [Input((S, 4)), Input((S, 1))], oracle, calls=calls),
    ]


def _cast_rows() -> list[OpCase]:
    odd = np.array([0.5, -0.5, 1.9, -1.9, 2.5, 3e9, -3e9, 1e-8, 65519, 65520, 7e4], np.float32)
    whole = np.array([0, 1, -1, 2047, 2049, 4099, 65504, 70000, 2**31 - 1, -(2**31)], np.int32)
    saturate = lambda t, x: x.trunc().clamp(-(2**31), 2**31 - 1).to(t.int32)  # noqa: E731
    half = np.array([0.5, -0.5, 1.9, -2.5, 65504, 1e-7, 6e-8, -0.0, INF], np.float16)
    not_finite = np.array([INF, -INF, NAN], np.float32)
    to_f32 = lambda t, x: x.to(t.float32)  # noqa: E731
    # By way of f32: torch would round an f64 only once, but the input is an f32.
    to_f16 = lambda t, x: x.to(t.float32).to(t.float16)  # noqa: E731
    rows = [
        ("f32_f16", odd, "f16", to_f16),
        ("f32_f16_special", not_finite, "f16", to_f16),
        ("f32_f16_many", normal(2, 3, 67), "f16", to_f16),
        ("f32_i32", odd, "i32", saturate),
        ("f32_i32_special", not_finite, "i32", lambda t, x: saturate(t, x.nan_to_num(0.0))),
        ("f32_f32", odd, "f32", to_f32),
        ("f16_f32", half, "f32", to_f32),
        ("f16_i32", half[np.isfinite(half)], "i32", lambda t, x: saturate(t, x.double())),
        ("f16_f16", half, "f16", lambda t, x: x),
        ("i32_f32", whole, "f32", to_f32),
        ("i32_f16", whole, "f16", to_f16),
        ("i32_i32", whole, "i32", lambda t, x: x),
        ("scalar", np.array(1.5, np.float32), "f16", to_f16),
        ("f32_bool", np.append(odd, not_finite), "boolean", lambda t, x: x != 0),
        ("i32_bool", np.append(whole, i32(1 << 24)), "boolean", lambda t, x: x != 0),
        ("bool_f32", whole[:2] > 0, "f32", to_f32),
        ("bool_i32", whole > 0, "i32", lambda t, x: x.int()),
        ("bool_bool", whole > 0, "boolean", lambda t, x: x),
    ]
    cases = [case("cast", n, [x], oracle, tolerance=0, dtype=to) for n, x, to, oracle in rows]
    sizes = [[normal(n, 3)] for n in (4, 9)]
    symbolic = case(
        "cast", "symbolic", [Input((S, 3))], to_f16, tolerance=0, calls=sizes, dtype="f16"
    )
    assert symbolic.slots[0] == Input((S, 3), DType.f32)
    return [*cases, symbolic]


ROWS = [
    *_unary_rows(),
    *_binary_rows(),
    *_whole_rows(),
    *_gated_rows(),
    *_affine_rows(),
    *_clamp_rows(),
    *_pow_rows(),
    *_cast_rows(),
]
