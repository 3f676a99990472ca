"""Rows of the op table: whole numbers, what walks along an axis, and states written as a whole."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from satchel.graph.ir import DType, Sym
from support.arrays import generator, i32, integers, normal
from support.op_case import Constant, Input, OpCase, State, case

S = Sym("S", 9)
NAN, INF = np.nan, np.inf
WIDTHS = {"i32": np.int32, "i64": np.int64}
_exact = partial(case, tolerance=0)

Oracle = Callable[..., Any]


def _wide(*shape: int, dtype: type, seed: object = 0) -> np.ndarray:
    """All sizes of numbers that the type has."""
    info = np.iinfo(dtype)
    random = generator(shape, seed, dtype.__name__)
    return random.integers(info.min, info.max, shape, dtype) >> random.integers(
        0, info.bits - 1, shape, dtype
    )


INTEGER: dict[str, Oracle] = {
    "and": lambda t, a, b: a & b,
    "or": lambda t, a, b: a | b,
    "xor": lambda t, a, b: a ^ b,
    "floor_div": lambda t, a, b: t.div(a, b, rounding_mode="floor"),
    "trunc_div": lambda t, a, b: t.div(a, b, rounding_mode="trunc"),
    "remainder": lambda t, a, b: t.remainder(a, b),
    "fmod": lambda t, a, b: t.fmod(a, b),
}
SHIFTS: dict[str, Oracle] = {"shl": lambda t, a, b: a << b, "shr": lambda t, a, b: a >> b}


def _integer_rows() -> list[OpCase]:
    rows = []
    for width, dtype in WIDTHS.items():
        a, b = _wide(3, 1, 7, dtype=dtype), _wide(5, 1, dtype=dtype, seed=1)
        b[b == 0] = 3
        lowest = np.array([np.iinfo(dtype).min, 5, -5, 5, -5, 0], dtype)
        divisors = np.array([3, 3, 3, -3, -3, -3], dtype)
        for kind, oracle in INTEGER.items():
            rows.append(_exact("integer", f"{kind}_{width}", [a, b], oracle, kind=kind))
            rows.append(
                _exact("integer", f"{kind}_{width}_signs", [lowest, divisors], oracle, kind=kind)
            )
        far = np.array([0, 1, 7, 31, 32, 63, 64, 99], dtype)
        for kind, oracle in SHIFTS.items():
            one = _wide(4, 1, dtype=dtype, seed=2)
            inside = far[far < np.iinfo(dtype).bits]
            rows.append(_exact("integer", f"{kind}_{width}", [one, inside], oracle, kind=kind))
        base, exponents = _wide(6, 1, dtype=dtype), np.array([0, 1, 2, 3, 31], dtype)
        oracle = lambda t, a, b: t.pow(a, b)  # noqa: E731
        rows.append(_exact("integer", f"pow_{width}", [base, exponents], oracle, kind="pow"))
    slots = [Input((S, 4), DType.i32), Input((4,), DType.i32)]
    calls = [[integers(n, 4, below=99), integers(4, below=9) + 1] for n in (9, 1)]
    divided = INTEGER["remainder"]
    rows.append(_exact("integer", "symbolic", slots, divided, calls=calls, kind="remainder"))
    rows.append(_exact("integer", "scalar", [np.array(7), np.array(3)], divided, kind="remainder"))
    return rows


def _i64_rows() -> list[OpCase]:
    """What other ops make of numbers of 64 bits."""
    a, b = _wide(3, 1, 5, dtype=np.int64), _wide(4, 1, dtype=np.int64, seed=1)
    both: dict[str, Oracle] = {
        "add": lambda t, a, b: a + b,
        "sub": lambda t, a, b: a - b,
        "mul": lambda t, a, b: a * b,
        "maximum": lambda t, a, b: t.maximum(a, b),
        "minimum": lambda t, a, b: t.minimum(a, b),
    }
    rows = [_exact(op, "i64", [a, b], oracle) for op, oracle in both.items()]
    for kind in ("lt", "le", "gt", "ge", "eq", "ne"):
        oracle = lambda t, a, b, kind=kind: getattr(t, kind)(a, b)  # noqa: E731
        rows.append(_exact("compare", f"{kind}_i64", [a, b], oracle, kind=kind))
    chosen = [a > b, a, b]
    rows.append(_exact("where", "i64", chosen, lambda t, c, a, b: t.where(c, a, b)))
    padded = lambda t, x: t.nn.functional.pad(x, (2, 0, 1, 1), value=-7)  # noqa: E731
    rows.append(_exact("pad", "i64", [b], padded, before=(1, 2), after=(1, 0), value=-7.0))
    targets = {"f32": "double", "i32": "int32", "boolean": "bool", "i64": "int64"}
    for name, other in targets.items():
        oracle = lambda t, x, other=other: x.to(getattr(t, other))  # noqa: E731
        rows.append(case("cast", f"i64_to_{name}", [a], oracle, dtype=name))
    floats = np.array([0.0, -1.5, 2.9, 1e10, -1e18, 16777217.0], np.float32)
    to_long = lambda t, x: x.long()  # noqa: E731
    for number, x in enumerate((floats, integers(7, below=9) - 4, normal(5) > 0)):
        rows.append(_exact("cast", f"to_i64_{number}", [x], to_long, dtype="i64"))
    small = np.array([5, -(2**31), 2**31 - 1])
    rows.append(_exact("cast", "checked", [small], lambda t, x: x.int(), dtype="i32", checked=1))
    rows.append(_exact("add", "i64_constant", [Constant(np.array(2**40)), a], both["add"]))
    return rows


def _reduction_rows() -> list[OpCase]:
    rows = []
    functions: dict[str, Oracle] = {
        "reduce_max": lambda t, x, dim, keep: x.amax(dim, keep),
        "reduce_min": lambda t, x, dim, keep: x.amin(dim, keep),
        "reduce_sum": lambda t, x, dim, keep: x.sum(dim, keep, dtype=x.dtype),
    }
    for op, function in functions.items():
        for width, dtype in WIDTHS.items():
            x = _wide(3, 4, 20, dtype=dtype)
            for axes, keep in (((0,), 0), ((2,), 1), ((0, 2), 0), ((0, 1, 2), 0)):
                oracle = lambda t, x, f=function, d=axes, k=keep: f(t, x, d, bool(k))  # noqa: E731
                name = f"{width}_{axes}_{keep}"
                rows.append(_exact(op, name, [x], oracle, axes=axes, keepdims=keep))
    for x in (normal(3, 4, 5), _wide(3, 4, 5, dtype=np.int32), _wide(3, 4, 5, dtype=np.int64)):
        oracle = lambda t, x: x.prod(1, dtype=x.dtype)  # noqa: E731
        rows.append(case("reduce_prod", x.dtype.name, [x], oracle, axes=(1,)))
        whole = lambda t, x: x.flatten().prod(0, dtype=x.dtype)  # noqa: E731
        rows.append(case("reduce_prod", f"{x.dtype.name}_all", [x], whole, axes=(0, 1, 2)))
    return rows


def _numbers() -> list[np.ndarray]:
    return [normal(3, 4, 5), _wide(3, 4, 5, dtype=np.int32), _wide(3, 4, 5, dtype=np.int64)]


def _scattered(t: Any, x: Any, numbers: Any, source: Any, axis: int, reduce: str) -> Any:
    return x.scatter_reduce(axis, numbers.long(), source, reduce)


def _sorted(t: Any, x: Any, axis: int, down: int) -> Any:
    return t.sort(x, dim=axis, descending=bool(down), stable=True)[1].int()


def _scatter_rows() -> list[OpCase]:
    rows = []
    kinds = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}
    for x in _numbers():
        for axis, shape in ((0, (7, 4, 5)), (1, (2, 6, 5)), (2, (3, 3, 1))):
            numbers = integers(*shape, below=x.shape[axis])
            source = (
                normal(*shape, seed=1).astype(x.dtype)
                if x.dtype.kind == "f"
                else (_wide(*shape, dtype=x.dtype.type, seed=1))
            )
            for kind, reduce in kinds.items():
                oracle = lambda t, x, n, s, a=axis, r=reduce: x.scatter_reduce(a, n.long(), s, r)  # noqa: E731
                name = f"{kind}_{x.dtype.name}_axis{axis}"
                rows.append(
                    case("scatter", name, [x, numbers, source], oracle, axis=axis, kind=kind)
                )
    x, numbers = normal(4, 5), np.tile(i32(3, 0, 2), (4, 1))  # each place once
    oracle = lambda t, x, n, s: x.scatter(1, n.long(), s)  # noqa: E731
    for dtype in (np.float32, np.int32, np.int64):
        source = normal(4, 3, scale=9, seed=1).astype(dtype)
        given = [x.astype(dtype), numbers, source]
        rows.append(_exact("scatter", f"set_{dtype.__name__}", given, oracle, axis=1, kind="set"))
    slots = [Input((S, 5)), Input((S, 3), DType.i32), Input((S, 3))]
    calls = [[normal(n, 5), np.tile(i32(3, 0, 2), (n, 1)), normal(n, 3)] for n in (9, 1)]
    rows.append(_exact("scatter", "symbolic", slots, oracle, calls=calls, axis=1, kind="set"))
    return rows


def _sort_rows() -> list[OpCase]:
    rows = []
    special = np.array([[3, NAN, -INF, 3, INF, -0.0, 0.0, NAN]], np.float32)
    ties = integers(6, 40, below=4)
    for name, x in {
        "f32": normal(3, 4, 5),
        "special": special,
        "i32": ties,
        "i64": _wide(5, 9, dtype=np.int64),
    }.items():
        for axis in range(x.ndim):
            for down in (0, 1):
                oracle = partial(_sorted, axis=axis, down=down)
                rows.append(
                    _exact(
                        "argsort", f"{name}_{axis}_{down}", [x], oracle, axis=axis, descending=down
                    )
                )
    return rows


def _cumulate_rows() -> list[OpCase]:
    rows = []
    functions: dict[str, Oracle] = {
        "sum": lambda t, x, a: x.cumsum(a, dtype=x.dtype),
        "prod": lambda t, x, a: x.cumprod(a, dtype=x.dtype),
        "max": lambda t, x, a: x.cummax(a)[0],
        "min": lambda t, x, a: x.cummin(a)[0],
    }
    for kind, function in functions.items():
        for x in _numbers():
            for axis in range(3):
                oracle = lambda t, x, f=function, a=axis: f(t, x, a)  # noqa: E731
                name = f"{kind}_{x.dtype.name}_{axis}"
                rows.append(case("cumulate", name, [x], oracle, axis=axis, kind=kind))
    calls = [[normal(n, 4)] for n in (9, 1)]
    oracle = lambda t, x: x.cumsum(0)  # noqa: E731
    rows.append(
        case("cumulate", "symbolic", [Input((S, 4))], oracle, calls=calls, axis=0, kind="sum")
    )
    return rows


def _count_rows() -> list[OpCase]:
    rows = []
    for x in (normal(3, 5), normal(3, 5) > 0):
        oracle = lambda t, x: t.arange(x.shape[1], dtype=t.int32)  # noqa: E731
        rows.append(_exact("count", x.dtype.name, [x], oracle, axis=1))
    first = lambda t, x: t.arange(x.shape[0], dtype=t.int32)  # noqa: E731
    calls = [[normal(n, 4)] for n in (9, 1, 5)]
    rows.append(_exact("count", "symbolic", [Input((S, 4))], first, calls=calls, axis=0))
    halved = lambda t, x: t.arange((x.shape[0] + 3) // 2 * 3 - 1, dtype=t.int32)  # noqa: E731
    steps = (1, 3, 2, 3, -1, 1)
    rows.append(_exact("count", "steps", [Input((S, 4))], halved, calls=calls, axis=0, steps=steps))
    return rows


def _state_rows() -> list[OpCase]:
    rows = []
    for dtype in (DType.f32, DType.i32, DType.i64, DType.boolean):
        calls = [[(normal(3, 2, seed=i) * 5).astype(dtype.numpy)] for i in range(3)]
        slots = [State((3, 2), dtype), Input((3, 2), dtype)]
        rows.append(
            _exact("state_write", dtype.name, slots, lambda t, s, x: s.copy_(x), calls=calls)
        )
    return rows


ROWS = [
    *_integer_rows(),
    *_i64_rows(),
    *_reduction_rows(),
    *_scatter_rows(),
    *_sort_rows(),
    *_cumulate_rows(),
    *_count_rows(),
    *_state_rows(),
]
