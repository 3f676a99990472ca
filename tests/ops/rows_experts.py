"""Rows of the op table: layers of experts, in every encoding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ops.rows_linear import FLOATS, QUANTIZED, ROUNDED
from satchel.encodings.encoding import Encoding
from satchel.graph.ir import DType, Sym
from support.arrays import integers, normal
from support.op_case import Input, OpCase, Stored, case

S = Sym("S", 40)


def _experts(count: int, layer: Callable[..., Any]) -> Callable[..., Any]:
    """Every choice's own layer, one by one."""

    def oracle(t: Any, x: Any, weight: Any, chosen: Any) -> Any:
        matrices = weight.reshape(count, -1, weight.shape[-1])
        per_choice = x if x.dim() == 3 else x[:, None].expand(-1, chosen.shape[1], -1)
        rows = [
            t.stack([layer(t, v, matrices[int(e)]) for v, e in zip(row, picks, strict=True)])
            for row, picks in zip(per_choice, chosen, strict=True)
        ]
        return t.stack(rows)

    return oracle


def _linear(t: Any, x: Any, weight: Any) -> Any:
    return t.nn.functional.linear(x, weight)


def _rows() -> list[OpCase]:
    rows = []
    forms = [("f32", e, 33) for e in FLOATS]
    forms += [(a, e, cols) for a in ("int8", "int16") for e, cols in QUANTIZED]
    for activations, encoding, cols in forms:
        layer = ROUNDED.get(activations, _linear)
        # Tokens, choices, experts and outputs: one of each, an expert that nobody chooses,
        # more tiles than a piece has.
        for tokens, choices, count, out, own in (
            (1, 1, 1, 16, False),
            (5, 2, 7, 32, False),
            (5, 2, 7, 32, True),
            (3, 3, 4, 144, True),
        ):
            weight = Stored(normal(count * out, cols, seed="w"), encoding)
            chosen = integers(tokens, choices, below=count)
            name = f"{activations}_{encoding}_{cols}_{tokens}x{choices}of{count}x{out}"
            x = normal(tokens, choices, cols) if own else normal(tokens, cols)
            rows.append(
                case(
                    "expert_linear",
                    f"{name}{'_own' if own else ''}".replace("matrix_", "").replace("/", "g"),
                    [x, weight, chosen],
                    _experts(count, layer),
                    experts=count,
                    activations=activations,
                )
            )
    return rows


def _sizes() -> list[OpCase]:
    """Blocks of tokens of any length, and one with more pairs than are multiplied at a time."""
    encoding = Encoding("matrix_q4", 32)
    weight = Stored(normal(3 * 16, 64, seed="w"), encoding)
    attrs: dict[str, Any] = {"experts": 3, "activations": "int8"}
    oracle = _experts(3, ROUNDED["int8"])
    slots = [Input((S, 64)), weight, Input((S, 2), DType.i32)]
    calls = [[normal(n, 64), integers(n, 2, below=3)] for n in (1, 40, 17)]
    many = [normal(300, 64), weight, integers(300, 2, below=2)]
    return [
        case("expert_linear", "symbolic", slots, oracle, calls=calls, **attrs),
        case("expert_linear", "many", many, oracle, **attrs),
    ]


ROWS = [*_rows(), *_sizes()]
