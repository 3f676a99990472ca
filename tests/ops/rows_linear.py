"""Rows of the op table: products with stored weights in every encoding, and plain matmul."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ops.rows_conv import activate
from satchel.encodings.encoding import Encoding
from satchel.graph.ir import DType, Sym
from satchel.graph.ops.activation import ACTIVATIONS
from support.arrays import i32, integers, normal
from support.op_case import Input, OpCase, Stored, case

S = Sym("S", 40)


def _linear(t: Any, x: Any, weight: Any, bias: Any = None) -> Any:
    return t.nn.functional.linear(x, weight, bias)


def _rounded_linear(most: int) -> Callable[..., Any]:
    """Activations become whole multiples of their row's largest magnitude / most."""

    def linear(t: Any, x: Any, weight: Any, bias: Any = None) -> Any:
        narrow = x.float()
        largest = narrow.abs().amax(-1, keepdim=True)
        factor = t.full_like(largest, most) / largest  # most / x would be a product in torch
        zero = factor.isposinf()
        codes = (narrow * factor.masked_fill(zero, 0)).round()
        steps = (largest / most).masked_fill(zero, 0)
        return t.nn.functional.linear(codes.double() * steps.double(), weight, bias)

    return linear


ROUNDED = {"int8": _rounded_linear(127), "int16": _rounded_linear(32512)}


def _embedding(t: Any, ids: Any, table: Any) -> Any:
    return t.nn.functional.embedding(ids, table)


FLOATS = (Encoding("matrix_f32"), Encoding("matrix_f16"))
# (encoding, columns); a group as wide as the matrix is a scale per row
QUANTIZED = (
    (Encoding("matrix_q4", 32), 64),
    (Encoding("matrix_q4", 32), 96),
    (Encoding("matrix_q4", 64), 192),
    (Encoding("matrix_q4", 128), 128),
    (Encoding("matrix_q4", 72), 72),
    (Encoding("matrix_q4_steps", 32), 1120),
    (Encoding("matrix_q4_steps", 64), 192),
    (Encoding("matrix_q8", 32), 96),
    (Encoding("matrix_q8", 64), 64),
    (Encoding("matrix_q8", 200), 200),
    (Encoding("matrix_lpbq4", 16), 64),
    (Encoding("matrix_lpbq4", 32), 96),
    (Encoding("matrix_lpbq4", 64), 192),
    (Encoding("matrix_lpbq4", 128), 256),
    (Encoding("matrix_q4_min", 32), 96),
    (Encoding("matrix_q4_min", 128), 128),
    (Encoding("matrix_q4_offset", 64), 192),
    (Encoding("matrix_q4_offset", 72), 72),
    (Encoding("matrix_q8_offset", 32), 64),
    (Encoding("matrix_q5", 32), 96),
    (Encoding("matrix_q5", 64), 192),
    (Encoding("matrix_q5_min", 32), 64),
    (Encoding("matrix_q4_k", 32), 256),
    (Encoding("matrix_q5_k", 32), 512),
    (Encoding("matrix_q6_k", 16), 512),
)
ROUNDINGS = [("int8", *form) for form in QUANTIZED] + [
    ("int16", encoding, cols)
    for encoding, cols in QUANTIZED
    if encoding.kind not in ("matrix_q4", "matrix_q8") or encoding.group == cols
]


def _name(encoding: Encoding, *shape: int) -> str:
    return f"{encoding}_{'x'.join(map(str, shape))}".replace("matrix_", "").replace("/", "g")


def _linear_rows() -> list[OpCase]:
    rows = []
    shapes = (((1,), 1), ((7,), 5), ((1, 64), 32), ((3, 33), 17), ((2, 1, 3, 65), 40))
    for encoding in FLOATS:
        for shape, out in (*shapes, ((31, 1024), 20)):  # rows of a page are copied apart
            weight = Stored(normal(out, shape[-1], seed="w"), encoding)
            rows.append(
                case("linear", _name(encoding, *shape, out), [normal(*shape), weight], _linear)
            )
    for activations, encoding, cols in ROUNDINGS:
        for leading, out in (((), 5), ((1,), 32), ((3,), 16), ((2, 2, 2), 37), ((35,), 50)):
            weight = Stored(normal(out, cols, seed="w"), encoding)
            rows.append(
                case(
                    "linear",
                    f"{activations}_{_name(encoding, *leading, cols, out)}",
                    [normal(*leading, cols), weight],
                    ROUNDED[activations],
                    activations=activations,
                )
            )
    return rows


def _linear_variations() -> list[OpCase]:
    """Bias, symbolic sizes and awkward activations, in every encoding."""
    rows = []
    kinds: list[tuple[str, Encoding, int]] = [*(("", e, 64) for e in FLOATS), *ROUNDINGS]
    for activations, encoding, cols in kinds:
        attrs = {"activations": activations} if activations else {}
        oracle = ROUNDED[activations] if activations else _linear
        weight = Stored(normal(20, cols, seed="w"), encoding)
        bias = Stored(normal(20, seed="b"), Encoding("f32"))
        x = normal(4, cols)
        awkward = np.stack(
            [np.zeros(cols), np.full(cols, 1e-42), x[0] * 1e20, x[1] * 1e-20]
        ).astype(np.float32)
        sizes = [[normal(n, cols)] for n in (1, 40, 17, 2)]
        name = f"{activations}{_name(encoding, cols)}"
        rows.append(case("linear", f"{name}_bias", [x, weight, bias], oracle, **attrs))
        rows.append(case("linear", f"{name}_no_bias", [x, weight, None], oracle, **attrs))
        for i in range(len(awkward)):  # apart, since their sizes differ
            inputs = [awkward[i : i + 1], weight]
            rows.append(case("linear", f"{name}_awkward{i}", inputs, oracle, **attrs))
        slots = [Input((S, cols)), weight, bias]
        rows.append(case("linear", f"{name}_symbolic", slots, oracle, calls=sizes, **attrs))
    kinds_by_name = {
        "int8": ["matrix_q4", "matrix_q4_min", "matrix_q5_k"],
        "int16": ["matrix_lpbq4", "matrix_q4_k"],
    }
    for activations, kind in ((a, k) for a, found in kinds_by_name.items() for k in found):
        large = Stored(normal(130, 256, seed="w"), Encoding(kind, 32))
        inputs = [normal(70, 256), large, Stored(normal(130, seed="b"), Encoding("f32"))]
        rows.append(
            case(
                "linear",
                f"threads_{activations}_{kind}",
                inputs,
                ROUNDED[activations],
                activations=activations,
            )
        )
    for name in ACTIVATIONS:
        for encoding in (FLOATS[0], Encoding("matrix_q8", 32), Encoding("matrix_lpbq4", 32)):
            rounded = "int8" if encoding.is_quantized else "f32"

            def layer(t: Any, x: Any, w: Any, n: str = name, r: str = rounded) -> Any:
                return activate(t, n, ROUNDED.get(r, _linear)(t, x, w))

            attrs = {"activations": rounded, "activation": name}
            inputs = [normal(9, 64), Stored(normal(37, 64, seed="w", scale=0.5), encoding)]
            rows.append(case("linear", _name(encoding) + name, inputs, layer, **attrs))
    # Columns in more than one block, and rows in uneven ones.
    inputs = [normal(29, 1100), Stored(normal(50, 1100, seed="w"), FLOATS[0])]
    rows.append(case("linear", "deep", inputs, _linear))
    # So many of them that all outputs pass over some before the next.
    for encoding in FLOATS:
        inputs = [normal(61, 2300), Stored(normal(83, 2300, seed="w"), encoding)]
        inputs.append(Stored(normal(83, seed="b"), Encoding("f32")))
        rows.append(case("linear", f"{_name(encoding)}_deeper", inputs, _linear))
    # One token and more tiles than wait at a time.
    wide = Stored(normal(2100, 32, seed="w"), Encoding("matrix_q8", 32))
    inputs = [normal(1, 32), wide]
    rows.append(case("linear", "wide", inputs, ROUNDED["int16"], activations="int16"))
    return rows


def _embedding_rows() -> list[OpCase]:
    rows = []
    for encoding, cols in (*((e, 33) for e in FLOATS), *QUANTIZED):
        table = Stored(normal(37, cols, seed="t"), encoding)
        for shape in ((), (1,), (9,), (2, 3), (2, 1, 2)):
            ids = integers(*shape, below=37)
            rows.append(case("embedding", _name(encoding, cols, *shape), [ids, table], _embedding))
        calls = [[i32(36, 0)], [integers(40, below=37)], [i32(5)]]
        slots = [Input((S,), DType.i32), table]
        rows.append(
            case("embedding", f"{_name(encoding, cols)}_symbolic", slots, _embedding, calls=calls)
        )
    return rows


def _matmul_rows() -> list[OpCase]:
    rows = []
    for a, b in (
        ((1, 1), (1, 1)),
        ((3, 4), (4, 5)),
        ((2, 3, 4), (4, 5)),
        ((3, 4), (2, 4, 5)),
        ((2, 1, 3, 4), (5, 4, 2)),
        ((1, 5, 3, 7), (2, 1, 7, 33)),
        ((65, 130), (130, 67)),
    ):
        name = "_".join("x".join(map(str, shape)) for shape in (a, b))
        inputs = [normal(*a, seed="a"), normal(*b, seed="b")]
        rows.append(case("matmul", name, inputs, lambda t, a, b: a @ b))
    calls = [[normal(n, 4), normal(4, 3)] for n in (40, 1)]
    slots = [Input((S, 4)), Input((4, 3))]
    rows.append(case("matmul", "symbolic", slots, lambda t, a, b: a @ b, calls=calls))
    return rows


ROWS = [*_linear_rows(), *_linear_variations(), *_embedding_rows(), *_matmul_rows()]
