"""Rows of the op table: reductions, normalisation, softmax."""

from __future__ import annotations

from typing import Any

import numpy as np

from satchel.encodings.encoding import Encoding
from satchel.graph.ir import Sym
from support.arrays import normal
from support.op_case import Constant, Input, OpCase, Oracle, Stored, case

S = Sym("S", 9)

REDUCTIONS: dict[str, Oracle] = {
    "reduce_sum": lambda t, x, axes, keep: x.sum(axes, keep),
    "reduce_mean": lambda t, x, axes, keep: x.mean(axes, keep),
    "reduce_max": lambda t, x, axes, keep: x.amax(axes, keep),
    "reduce_min": lambda t, x, axes, keep: x.amin(axes, keep),
}
AXES = (
    ((7,), (0,)),
    ((3, 5), (1,)),
    ((3, 5), (1, 0)),
    ((2, 3, 4, 5), (0, 2)),
    ((2, 3, 4, 5), (3,)),
    ((2, 9, 11, 70), (1, 2)),
)


def _reduction_rows() -> list[OpCase]:
    rows = []
    for op, reduce in REDUCTIONS.items():
        for shape, axes in AXES:
            for keep in (0, 1):
                oracle = lambda t, x, r=reduce, a=axes, k=keep: r(t, x, a, bool(k))  # noqa: E731
                name = f"{'x'.join(map(str, shape))}_over_{''.join(map(str, axes))}_keep{keep}"
                rows.append(case(op, name, [normal(*shape)], oracle, axes=axes, keepdims=keep))
        # torch takes no axes for all of them; here no axes are no reduction.
        nothing = lambda t, x: x  # noqa: E731
        rows.append(case(op, "no_axes", [normal(3, 2)], nothing, axes=()))
        rows.append(case(op, "scalar", [normal()], nothing, axes=()))
        last = lambda t, x, r=reduce: r(t, x, (1,), False)  # noqa: E731
        sizes = [[normal(n, 5)] for n in (9, 1)]
        rows.append(case(op, "symbolic_kept", [Input((S, 5))], last, calls=sizes, axes=(1,)))
        first = lambda t, x, r=reduce: r(t, x, (0,), False)  # noqa: E731
        rows.append(case(op, "symbolic_gone", [Input((S, 5))], first, calls=sizes, axes=(0,)))
        rows.append(case(op, "long", [normal(2, 20011) + 3], last, axes=(1,)))
        special = np.array([[1, np.nan, 2], [np.inf, 0, 1], [-np.inf, 0, 1]], np.float32)
        rows.append(case(op, "special", [special], last, axes=(1,)))
    return rows


def _vector(width: int, seed: str) -> Stored:
    return Stored(normal(width, seed=seed) + 1, Encoding("f32"))


def _rms(eps: float) -> Oracle:
    return lambda t, x, w: t.nn.functional.rms_norm(x, x.shape[-1:], w, eps)


def _layer(eps: float) -> Oracle:
    return lambda t, x, w, b=None: t.nn.functional.layer_norm(x, x.shape[-1:], w, b, eps)


def _coded(oracle: Oracle, scale: float, zero: int) -> Oracle:
    inverse = float(np.float32(1) / np.float32(scale))

    def rounded(t: Any, *tensors: Any) -> Any:
        steps = (oracle(t, *tensors).float() * inverse).round() + zero
        return steps.clamp(0, 255).to(t.uint8)

    return rounded


def _norm_rows() -> list[OpCase]:
    rows = []
    eps = 1e-5
    for shape in ((1,), (7,), (3, 64), (2, 3, 100), (2, 1, 3, 33), (5, 1025)):
        x, width = normal(*shape) * 3 + 0.5, shape[-1]
        name = "x".join(map(str, shape))
        weight, bias = _vector(width, "w"), _vector(width, "b")
        rows.append(case("rms_norm", name, [x, weight], _rms(eps), eps=eps))
        rows.append(case("layer_norm", name, [x, weight], _layer(eps), eps=eps))
        rows.append(case("layer_norm", f"{name}_bias", [x, weight, bias], _layer(eps), eps=eps))
    x = normal(3, 8)
    given = [normal(3, 8), normal(8, seed=1), normal(8, seed=2)]
    weight = _vector(8, "w")
    sizes = [[normal(n, 8)] for n in (9, 1)]
    return [
        *rows,
        case("rms_norm", "inputs", given[:2], _rms(1e-6), eps=1e-6),
        case("rms_norm", "constant", [x, Constant(normal(8))], _rms(0.1), eps=0.1),
        case("rms_norm", "no_eps", [x, weight], _rms(0.0), eps=0),
        case("rms_norm", "tiny", [x * 1e-12, weight], _rms(1e-6), eps=1e-6),
        case("rms_norm", "zeros", [np.zeros((2, 8), np.float32), weight], _rms(eps), eps=eps),
        case("rms_norm", "symbolic", [Input((S, 8)), weight], _rms(eps), calls=sizes, eps=eps),
        case("layer_norm", "inputs", given, _layer(1e-6), eps=1e-6),
        *(
            case(
                "layer_norm",
                f"codes_{n}x{width}",
                [normal(n, width), _vector(width, "w"), _vector(width, "b")],
                _coded(_layer(eps), 0.02, 117),
                eps=eps,
                out_scale=0.02,
                out_zero=117,
            )
            for n, width in ((1, 1), (3, 33), (40, 96))
        ),
        case("layer_norm", "absent_bias", [x, weight, None], _layer(eps), eps=eps),
        # The mean is far from zero: the variance must not be computed from squares of x.
        case("layer_norm", "offset", [normal(3, 64) + 100, _vector(64, "w")], _layer(eps), eps=eps),
        case("layer_norm", "flat", [np.full((2, 8), 5, np.float32), weight], _layer(eps), eps=eps),
        case("layer_norm", "symbolic", [Input((S, 8)), weight], _layer(eps), calls=sizes, eps=eps),
    ]


def _softmax_rows() -> list[OpCase]:
    rows = []
    for shape in ((5,), (1,), (3, 7), (2, 3, 4, 5)):
        for axis in range(-len(shape), len(shape)):
            name = f"{'x'.join(map(str, shape))}_axis{axis}"
            oracle = lambda t, x, axis=axis: x.softmax(axis)  # noqa: E731
            rows.append(case("softmax", name, [normal(*shape, scale=3)], oracle, axis=axis))
    last = lambda t, x: x.softmax(-1)  # noqa: E731
    masked = np.array([[1, -np.inf, 2], [-np.inf, -np.inf, 0]], np.float32)
    sizes = [[normal(n, 5)] for n in (9, 1)]
    first = lambda t, x: x.softmax(0)  # noqa: E731
    return [
        *rows,
        case("softmax", "default_axis", [normal(3, 5)], last),
        case("softmax", "large", [normal(3, 5) * 1e4], last),
        case("softmax", "masked", [masked], last),
        case("softmax", "nan", [np.array([1, np.nan], np.float32)], last),
        case("softmax", "symbolic", [Input((S, 5))], last, calls=sizes),
        case("softmax", "symbolic_axis", [Input((S, 5))], first, calls=sizes, axis=0),
    ]


ROWS = [*_reduction_rows(), *_norm_rows(), *_softmax_rows()]
