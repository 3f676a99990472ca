"""Rows of the op table: ops that compare, choose, pick by number, pad and repeat."""

from __future__ import annotations

from functools import partial

import numpy as np

from satchel.graph.ir import DType, Sym
from support.arrays import i32, integers, normal, uniform
from support.op_case import Constant, Input, OpCase, case

S = Sym("S", 9)
NAN = np.nan
_exact = partial(case, tolerance=0)


def _bools(*shape: int, seed: object = 0) -> np.ndarray:
    return integers(*shape, below=2, seed=seed).astype(bool)


def _compare_rows() -> list[OpCase]:
    rows = []
    special = np.array([0.0, -0.0, 1.0, NAN, np.inf, -np.inf], np.float32)
    for kind in ("lt", "le", "gt", "ge", "eq", "ne"):
        oracle = lambda t, a, b, kind=kind: getattr(t, kind)(a, b)  # noqa: E731
        a, b = integers(3, 1, 5, below=4), integers(4, 1, below=4, seed=1)
        for name, left, right in (
            ("i32", a, b),
            ("f32", a.astype(np.float32), b.astype(np.float32)),
            ("special", np.repeat(special, 6), np.tile(special, 6)),
            ("scalar", normal(), normal(seed=1)),
        ):
            rows.append(_exact("compare", f"{kind}_{name}", [left, right], oracle, kind=kind))
    calls = [[normal(n, 4), normal(4, seed=1)] for n in (1, 9)]
    slots = [Input((S, 4)), Input((4,))]
    oracle = lambda t, a, b: a < b  # noqa: E731
    rows.append(_exact("compare", "symbolic", slots, oracle, calls=calls, kind="lt"))
    return rows


def _where_rows() -> list[OpCase]:
    oracle = lambda t, c, a, b: t.where(c, a, b)  # noqa: E731
    number = Constant(np.array(-np.inf, np.float32))
    calls = [[_bools(n, 1), normal(n, 5), normal(5, seed=1)] for n in (9, 2)]
    slots = [Input((S, 1), DType.boolean), Input((S, 5)), Input((5,))]
    return [
        _exact("where", "same", [_bools(3, 5), normal(3, 5), normal(3, 5, seed=1)], oracle),
        _exact("where", "mask", [_bools(4, 4), normal(2, 3, 4, 4), number], oracle),
        _exact("where", "column", [_bools(3, 1), normal(3, 5003), normal(1, 5003)], oracle),
        _exact("where", "i32", [_bools(6), integers(6, below=9), integers(1, below=9)], oracle),
        _exact("where", "constant", [Constant(_bools(3, 5)), normal(5), normal(3, 1)], oracle),
        _exact("where", "scalar", [_bools(), normal(), normal(seed=1)], oracle),
        _exact("where", "symbolic", slots, oracle, calls=calls),
    ]


def _expand_rows() -> list[OpCase]:
    rows = []
    for shape, wanted in (((), (3,)), ((1, 5), (4, 5)), ((3, 1), (2, 3, 7)), ((2, 3), (2, 3))):
        oracle = lambda t, x, wanted=wanted: x.expand(wanted)  # noqa: E731
        rows.append(
            _exact("expand", f"{len(wanted)}_{shape}", [normal(*shape)], oracle, shape=wanted)
        )
    for x in (_bools(1, 4), integers(1, 4, below=9).astype(np.uint8), integers(4, below=9)):
        oracle = lambda t, x: x.expand(3, 4)  # noqa: E731
        rows.append(_exact("expand", x.dtype.name, [x], oracle, shape=(3, 4)))
    calls = [[normal(1, 1, 6), normal(n, 4)] for n in (1, 9, 3)]
    slots = [Input((1, 1, 6)), Input((S, 4))]
    oracle = lambda t, x, like: x.expand(len(like), 2, 6)  # noqa: E731
    rows.append(_exact("expand", "like", slots, oracle, calls=calls, shape=(-1, 2, 6)))
    return rows


def _take_rows() -> list[OpCase]:
    rows = []
    for axis in range(3):
        oracle = lambda t, x, n, axis=axis: x.index_select(axis, n)  # noqa: E731
        rows.append(
            _exact("take", f"axis{axis}", [normal(3, 4, 5), i32(2, 0, 2, 1)], oracle, axis=axis)
        )
    last = lambda t, x, n: x.index_select(x.ndim - 1, n)  # noqa: E731
    numbers = Constant(i32(3, 1))
    rows += [
        _exact("take", "u8", [integers(3, 5, below=99).astype(np.uint8), numbers], last, axis=1),
        _exact("take", "bool", [_bools(5), numbers], last, axis=0),
        _exact("take", "many", [normal(40, 7, 33), i32(6, 5, 1)], lambda t, x, n: x[:, n], axis=1),
    ]
    calls = [[normal(n, 4), i32(*range(m))] for n, m in ((9, 2), (1, 4))]
    slots = [Input((S, 4)), Input((Sym("L", 6),), DType.i32)]
    rows.append(_exact("take", "symbolic", slots, last, calls=calls, axis=1))
    return rows


def _gather_rows() -> list[OpCase]:
    rows = []
    for axis, shape in ((0, (7, 4, 5)), (1, (3, 6, 5)), (2, (2, 3, 9)), (1, (2, 2, 4))):
        oracle = lambda t, x, n, axis=axis: x.gather(axis, n.long())  # noqa: E731
        numbers = integers(*shape, below=3)
        rows.append(
            _exact("gather", f"axis{axis}_{shape}", [normal(3, 4, 5), numbers], oracle, axis=axis)
        )
    vector = lambda t, x, n: x.gather(0, n.long())  # noqa: E731
    rows.append(
        _exact("gather", "u8", [integers(6, below=99).astype(np.uint8), i32(5, 5)], vector, axis=0)
    )
    calls = [[normal(n, 4), integers(n, 2, below=4)] for n in (9, 1)]
    slots = [Input((S, 4)), Input((S, 2), DType.i32)]
    oracle = lambda t, x, n: x.gather(1, n.long())  # noqa: E731
    rows.append(_exact("gather", "symbolic", slots, oracle, calls=calls, axis=1))
    return rows


def _pad_rows() -> list[OpCase]:
    rows = []
    for name, shape, before, after, value in (
        ("one", (3,), (2,), (1,), 0.0),
        ("image", (2, 4, 5, 3), (0, 1, 2, 0), (0, 3, 0, 0), -1.5),
        ("channels", (2, 3), (0, 2), (0, 2), 7.0),
        ("nothing", (2, 3), (0, 0), (0, 0), 7.0),
        ("scalar", (), (), (), 7.0),
    ):
        widths = [w for pair in zip(before[::-1], after[::-1], strict=True) for w in pair]
        oracle = lambda t, x, w=widths, v=value: t.nn.functional.pad(x, w, value=v)  # noqa: E731
        attrs = {"before": before, "after": after, "value": value}
        rows.append(_exact("pad", name, [normal(*shape)], oracle, **attrs))
    for x in (integers(2, 3, below=9), integers(2, 3, below=9).astype(np.uint8)):
        oracle = lambda t, x: t.nn.functional.pad(x, (1, 2), value=200)  # noqa: E731
        attrs = {"before": (0, 1), "after": (0, 2), "value": 200}
        rows.append(_exact("pad", x.dtype.name, [x], oracle, **attrs))
    calls = [[normal(n, 4)] for n in (9, 1)]
    oracle = lambda t, x: t.nn.functional.pad(x, (1, 0))  # noqa: E731
    rows.append(
        _exact("pad", "symbolic", [Input((S, 4))], oracle, calls=calls, before=(0, 1), after=(0, 0))
    )
    return rows


def _argmax_rows() -> list[OpCase]:
    rows = []
    for axis in range(3):
        for keep in (0, 1):
            oracle = lambda t, x, a=axis, k=keep: x.argmax(a, bool(k)).int()  # noqa: E731
            x = normal(3, 70, 5)
            rows.append(
                _exact("argmax", f"axis{axis}_{keep}", [x], oracle, axis=axis, keepdims=keep)
            )
    first = lambda t, x: x.argmax(0).int()  # noqa: E731
    rows += [
        _exact("argmax", "equal", [np.float32([1, 3, 3, 2])], first, axis=0),
        _exact("argmax", "nan", [np.float32([1, NAN, 3, NAN])], first, axis=0),
        _exact("argmax", "infinite", [np.float32([-np.inf, -np.inf])], first, axis=0),
    ]
    calls = [[uniform(n, 4, low=0, high=1)] for n in (9, 1)]
    oracle = lambda t, x: x.argmax(1).int()  # noqa: E731
    rows.append(_exact("argmax", "symbolic", [Input((S, 4))], oracle, calls=calls, axis=1))
    return rows


ROWS = [
    *_compare_rows(),
    *_where_rows(),
    *_expand_rows(),
    *_take_rows(),
    *_gather_rows(),
    *_pad_rows(),
    *_argmax_rows(),
]
