"""Rows of the op table: ops that move values, all of them exact."""

from __future__ import annotations

from functools import partial

import numpy as np

from satchel.encodings.encoding import Encoding
from satchel.graph.ir import DType, Sym
from support.arrays import i32, integers, normal
from support.op_case import Constant, Input, OpCase, Stored, case

S, L = Sym("S", 9), Sym("L", 6)
_exact = partial(case, tolerance=0)


def _of(dtype: str, *shape: int) -> np.ndarray:
    return integers(*shape, below=100).astype(dtype)


def _reshape(name: str, x: np.ndarray, shape: tuple[int, ...], result: tuple[int, ...]) -> OpCase:
    return _exact("reshape", name, [x], lambda t, x: x.reshape(result), shape=shape)


def _reshape_rows() -> list[OpCase]:
    rows = [
        _reshape("flat", normal(2, 3, 5), (30,), (30,)),
        _reshape("keep", normal(4, 6), (0, 2, 3), (4, 2, 3)),
        _reshape("keep_two", normal(2, 3, 4), (0, 0, 2, 2), (2, 3, 2, 2)),
        _reshape("from_scalar", normal(), (1, 1), (1, 1)),
        _reshape("to_scalar", normal(1), (), ()),
    ]
    rows += [_reshape(d, _of(d, 6), (2, 3), (2, 3)) for d in ("float16", "int64", "int8", "uint8")]
    rows.append(_reshape("bool", integers(6, below=2).astype(bool), (3, 2), (3, 2)))
    calls = [[normal(n, 6)] for n in (9, 1, 5)]
    rows.append(
        _exact(
            "reshape",
            "symbolic",
            [Input((S, 6))],
            lambda t, x: x.reshape(-1, 3, 2),
            calls=calls,
            shape=(0, 3, 2),
        )
    )
    joined = lambda t, x: x.reshape(-1, 3)  # noqa: E731
    rows.append(_exact("reshape", "joined", [Input((S, 6))], joined, calls=calls, shape=(-1, 3)))
    return rows


def _transpose_rows() -> list[OpCase]:
    rows = []
    for perm in ((), (0,), (1, 0), (0, 1), (2, 0, 1), (0, 2, 1, 3), (3, 2, 1, 0)):
        x = normal(*(2, 3, 5, 7)[: len(perm)])
        oracle = lambda t, x, perm=perm: x.permute(perm)  # noqa: E731
        rows.append(
            _exact("transpose", "".join(map(str, perm)) or "scalar", [x], oracle, perm=perm)
        )
    swap = lambda t, x: x.T  # noqa: E731
    rows += [
        _exact("transpose", d, [_of(d, 4, 3)], swap, perm=(1, 0))
        for d in ("float16", "int64", "uint8")
    ]
    calls = [[normal(n, 4)] for n in (9, 1)]
    rows.append(_exact("transpose", "symbolic", [Input((S, 4))], swap, calls=calls, perm=(1, 0)))
    rows.append(_exact("transpose", "large", [normal(67, 129)], swap, perm=(1, 0)))
    return rows


def _slice_rows() -> list[OpCase]:
    rows = [
        _exact("slice", "first", [normal(7)], lambda t, x: x[:1], axis=0, start=0, stop=1),
        _exact("slice", "last", [normal(3, 7)], lambda t, x: x[:, 6:], axis=1, start=6, stop=7),
        _exact("slice", "all", [normal(3, 7)], lambda t, x: x, axis=0, start=0, stop=3),
        _exact(
            "slice",
            "middle",
            [normal(2, 3, 5, 7)],
            lambda t, x: x[:, :, 1:4],
            axis=2,
            start=1,
            stop=4,
        ),
        _exact("slice", "int64", [_of("int64", 6)], lambda t, x: x[2:5], axis=0, start=2, stop=5),
    ]
    calls = [[normal(n, 6)] for n in (9, 2)]
    oracle = lambda t, x: x[:, 2:4]  # noqa: E731
    rows.append(
        _exact("slice", "symbolic", [Input((S, 6))], oracle, calls=calls, axis=1, start=2, stop=4)
    )
    return rows


def _concat_rows() -> list[OpCase]:
    rows = []
    for axis in range(4):
        shapes = [[2, 3, 4, 5], [2, 3, 4, 5], [2, 3, 4, 5]]
        shapes[1][axis] = 1
        parts = [normal(*shape, seed=i) for i, shape in enumerate(shapes)]
        oracle = lambda t, *parts, axis=axis: t.cat(parts, axis)  # noqa: E731
        rows.append(_exact("concat", f"axis{axis}", parts, oracle, axis=axis))
    join = lambda t, *parts: t.cat(parts)  # noqa: E731
    rows.append(_exact("concat", "one", [normal(3)], join, axis=0))
    rows.append(_exact("concat", "eight", [normal(i + 1) for i in range(8)], join, axis=0))
    rows.append(_exact("concat", "f16", [_of("float16", 2), _of("float16", 3)], join, axis=0))
    rows.append(_exact("concat", "constant", [normal(2, 3), Constant(normal(1, 3))], join, axis=0))
    calls = [[normal(n, 2), normal(n, 3)] for n in (1, 9)]
    rows.append(
        _exact(
            "concat",
            "symbolic",
            [Input((S, 2)), Input((S, 3))],
            lambda t, a, b: t.cat([a, b], 1),
            calls=calls,
            axis=1,
        )
    )
    return rows


def _take_rows_rows() -> list[OpCase]:
    take = lambda t, x, rows: x[rows.long()]  # noqa: E731
    weight = Stored(normal(5), Encoding("f32"))
    slots = [Input((S, 3)), Input((L,), DType.i32)]
    calls = [[normal(9, 3), i32(8)], [normal(1, 3), i32(0, 0)], [normal(4, 3), i32(3, 1, 2, 0)]]
    return [
        _exact("take_rows", "repeated", [normal(4, 3), i32(3, 3, 0)], take),
        _exact("take_rows", "vector", [normal(4), i32(2)], take),
        _exact("take_rows", "rank4", [normal(3, 2, 2, 5), i32(2, 0)], take),
        _exact("take_rows", "int64", [_of("int64", 4, 2), i32(1, 3)], take),
        _exact("take_rows", "weight", [weight, i32(4, 0)], take),
        _exact("take_rows", "constant_rows", [normal(4, 3), Constant(i32(1, 2))], take),
        _exact("take_rows", "symbolic", slots, take, calls=calls),
    ]


ROWS = [
    *_reshape_rows(),
    *_transpose_rows(),
    *_slice_rows(),
    *_concat_rows(),
    *_take_rows_rows(),
]
