"""Ops that work on each element alone, with numpy's broadcasting."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.errors import ExecutionError
from satchel.graph.ops.registry import Arrays, Attrs, Trait, Types, define, require
from satchel.graph.types import Dim, DType, Shape, TensorType, attr_float, attr_int, attr_str

Array = NDArray[Any]
WHOLE = (DType.i32, DType.i64)


def erf(x: Array) -> Array:
    """The error function by rational approximations (Cody, 1969), good to the last digits."""
    y = np.abs(x)
    square = np.minimum(y, 0.5) ** 2
    inner = np.polyval(_ERF_INNER[0], square) / np.polyval(_ERF_INNER[1], square) * y
    middle_y = np.clip(y, 0.4, 4.0)
    middle = np.polyval(_ERF_MIDDLE[0], middle_y) / np.polyval(_ERF_MIDDLE[1], middle_y)
    outer_y = np.clip(y, 3.9, 7.0)
    z = 1 / outer_y**2
    outer = z * np.polyval(_ERF_OUTER[0], z) / np.polyval(_ERF_OUTER[1], z)
    outer = (1 / math.sqrt(math.pi) - outer) / outer_y
    tail = np.where(y <= 4, middle, outer) * np.exp(-(np.minimum(y, 7.0) ** 2))
    result: Array = np.copysign(np.where(y <= 0.5, inner, 1 - tail), x)
    return np.where(np.isnan(x), x, result)


def _coefficients(text: str) -> list[float]:
    return [float(number) for number in text.split()]


# Numerators and denominators, the highest powers first, for |x| to 0.5, to 4 and beyond.
_ERF_INNER = (
    _coefficients(
        "0.18577770618460315 3.1611237438705655 113.86415415105016 377.485237685302 "
        "3209.3775891384694"
    ),
    _coefficients("1.0 23.601290952344122 244.02463793444417 1282.6165260773723 2844.236833439171"),
)
_ERF_MIDDLE = (
    _coefficients(
        "2.1531153547440383e-08 0.5641884969886701 8.883149794388377 66.11919063714163 "
        "298.6351381974001 881.952221241769 1712.0476126340707 2051.0783778260716 "
        "1230.3393547979972"
    ),
    _coefficients(
        "1.0 15.744926110709835 117.6939508913125 537.1811018620099 1621.3895745666903 "
        "3290.7992357334597 4362.619090143247 3439.3676741437216 1230.3393548037495"
    ),
)
_ERF_OUTER = (
    _coefficients(
        "0.016315387137302097 0.30532663496123236 0.36034489994980445 0.12578172611122926 "
        "0.016083785148742275 0.0006587491615298378"
    ),
    _coefficients(
        "1.0 2.568520192289822 1.8729528499234673 0.5279051029514285 0.06051834131244132 "
        "0.0023352049762686918"
    ),
)


def inverse_erf(x: Array) -> Array:
    """The number whose error function is x: Winitzki's formula, and steps of Halley's."""
    inside = np.clip(x, -1 + 1e-12, 1 - 1e-12)
    logarithm = np.log((1 - inside) * (1 + inside))
    half = 2 / (math.pi * 0.147) + logarithm / 2
    root = np.sqrt(np.maximum(np.sqrt(half**2 - logarithm / 0.147) - half, 0))
    z: Array = np.copysign(root, inside)
    for _ in range(3):
        off = (erf(z) - inside) / (2 / math.sqrt(math.pi) * np.exp(-(z**2)))
        z = z - off / (1 + z * off)
    z = np.where(np.abs(x) == 1, np.copysign(np.inf, x), z)
    return np.where(np.abs(x) <= 1, z, np.nan)


def broadcast(a: Shape, b: Shape, op: str) -> Shape:
    """Numpy's rule; a symbol matches only itself or 1."""

    def one(x: Dim, y: Dim) -> Dim:
        require(x == y or 1 in (x, y), op, f"the shapes {a} and {b} do not broadcast")
        return y if x == 1 else x

    rank = max(len(a), len(b))
    left = (1,) * (rank - len(a)) + a
    right = (1,) * (rank - len(b)) + b
    return tuple(one(x, y) for x, y in zip(left, right, strict=True))


def _define_binary(
    name: str, function: Callable[[Array, Array], Array], *more: Trait, integers: bool = False
) -> None:
    class Binary:
        @staticmethod
        def types(types: Types, _attrs: Attrs) -> list[TensorType]:
            a, b = types
            assert a and b
            allowed = (DType.f32, *WHOLE) if integers else (DType.f32,)
            fits = a.dtype == b.dtype and a.dtype in allowed
            wanted = ", both i32 or both i64" if integers else ""
            require(fits, name, f"both inputs must be f32{wanted}", types)
            return [TensorType(broadcast(a.shape, b.shape, name), a.dtype)]

        @staticmethod
        def run(arrays: Arrays, _attrs: Attrs) -> list[Array]:
            return [function(arrays[0], arrays[1])]

    define(name, 2, traits=[Trait.elementwise, *more])(Binary)


def _define_unary(name: str, function: Callable[[Array], Array], *more: Trait) -> None:
    class Unary:
        @staticmethod
        def types(types: Types, _attrs: Attrs) -> list[TensorType]:
            (x,) = types
            assert x
            require(x.dtype == DType.f32, name, "the input must be f32", types)
            return [x]

        @staticmethod
        def run(arrays: Arrays, _attrs: Attrs) -> list[Array]:
            # Transcendentals go through f64, so that the reference has no error of its own.
            return [function(arrays[0].astype(np.float64)).astype(np.float32)]

    define(name, 1, traits=[Trait.unary, *more])(Unary)


def sigmoid(x: Array) -> Array:
    out: Array = 1 / (1 + np.exp(-np.clip(x, -700, 700)))
    return out


def hardsigmoid(x: Array) -> Array:
    out: Array = np.clip(x / 6 + 0.5, 0, 1)
    return out


def gelu_tanh(x: Array) -> Array:
    out: Array = 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return out


_define_binary("add", np.add, Trait.integer_pair, integers=True)
_define_binary("sub", np.subtract, integers=True)
_define_binary("mul", np.multiply, Trait.integer_pair, integers=True)
_define_binary("div", np.divide)
_define_binary("maximum", np.maximum, integers=True)
_define_binary("minimum", np.minimum, integers=True)
_define_binary("pow", np.power)
_define_binary("atan2", lambda a, b: np.arctan2(a, b, dtype=np.float64).astype(np.float32))
_define_binary("fmod", np.fmod)

_define_unary("neg", np.negative, Trait.tabulated)
_define_unary("abs", np.abs, Trait.tabulated)
_define_unary("exp", np.exp, Trait.tabulated)
_define_unary("log", np.log)
_define_unary("sqrt", np.sqrt, Trait.tabulated)
_define_unary("rsqrt", lambda x: 1 / np.sqrt(x))
_define_unary("sin", np.sin)
_define_unary("cos", np.cos)
_define_unary("tan", np.tan)
_define_unary("asin", np.arcsin)
_define_unary("acos", np.arccos)
_define_unary("atan", np.arctan)
_define_unary("sinh", np.sinh)
_define_unary("cosh", np.cosh)
_define_unary("asinh", np.arcsinh)
_define_unary("acosh", np.arccosh)
_define_unary("atanh", np.arctanh)
_define_unary("exp2", np.exp2)
_define_unary("expm1", np.expm1)
_define_unary("log1p", np.log1p)
_define_unary("log2", np.log2)
_define_unary("log10", np.log10)
_define_unary("erfinv", inverse_erf)
_define_unary("trunc", np.trunc)
_define_unary("erf", erf, Trait.tabulated)
_define_unary("floor", np.floor)
_define_unary("round", np.rint)  # halves go to the even number
# What a layer can do to its own result; in integers, a table of its own does it.
_ACTIVATION = (Trait.activation, Trait.tabulated)
_define_unary("tanh", np.tanh, *_ACTIVATION)
_define_unary("hardsigmoid", hardsigmoid, *_ACTIVATION)
_define_unary("hardswish", lambda x: x * hardsigmoid(x), *_ACTIVATION)
_define_unary("relu", lambda x: np.maximum(x, 0), *_ACTIVATION)
_define_unary("sigmoid", sigmoid, *_ACTIVATION)
_define_unary("silu", lambda x: x * sigmoid(x), *_ACTIVATION)
_define_unary("gelu", lambda x: 0.5 * x * (1 + erf(x / math.sqrt(2))), *_ACTIVATION)
_define_unary("gelu_tanh", gelu_tanh, *_ACTIVATION)


def _define_gated(name: str, activation: Callable[[Array], Array]) -> None:
    class Gated:
        """activation(gate) * up: what the fuse_gates pass makes of the two nodes."""

        @staticmethod
        def types(types: Types, _attrs: Attrs) -> list[TensorType]:
            gate, up = types
            assert gate and up
            require(gate == up and gate.dtype == DType.f32, name, "the inputs must match", types)
            return [gate]

        @staticmethod
        def run(arrays: Arrays, _attrs: Attrs) -> list[Array]:
            gate, up = (a.astype(np.float64) for a in arrays)
            return [(activation(gate) * up).astype(np.float32)]

    define(name, 2, traits=[Trait.elementwise])(Gated)


_define_gated("silu_mul", lambda x: x * sigmoid(x))
_define_gated("gelu_tanh_mul", gelu_tanh)


@define("affine", 1, "scale", "shift", traits=[Trait.unary, Trait.tabulated])
class Affine:
    """x * scale + shift, with numbers that are known at export."""

    @staticmethod
    def types(types: Types, attrs: Attrs) -> list[TensorType]:
        (x,) = types
        assert x
        require(x.dtype == DType.f32, "affine", "the input must be f32", types)
        attr_float(attrs, "scale", 1.0)
        attr_float(attrs, "shift", 0.0)
        return [x]

    @staticmethod
    def run(arrays: Arrays, attrs: Attrs) -> list[Array]:
        scale = np.float32(attr_float(attrs, "scale", 1.0))
        shift = np.float32(attr_float(attrs, "shift", 0.0))
        return [arrays[0] * scale + shift]


@define("clamp", 1, "low", "high", traits=[Trait.unary, Trait.tabulated])
class Clamp:
    """Numbers below ``low`` become it, those above ``high`` become that; either may be left out."""

    @staticmethod
    def types(types: Types, attrs: Attrs) -> list[TensorType]:
        (x,) = types
        assert x
        require(x.dtype == DType.f32, "clamp", "the input must be f32", types)
        low, high = (attr_float(attrs, name, 0.0) for name in ("low", "high"))
        require(len(attrs) < 2 or low <= high, "clamp", f"{low} is above {high}", types)
        return [x]

    @staticmethod
    def run(arrays: Arrays, attrs: Attrs) -> list[Array]:
        out = arrays[0]
        if "low" in attrs:
            out = np.maximum(out, np.float32(attr_float(attrs, "low")))
        if "high" in attrs:
            out = np.minimum(out, np.float32(attr_float(attrs, "high")))
        return [out.copy()]


@define("cast", 1, "dtype", "checked", traits=[Trait.unary])
class Cast:
    """Convert between f32, f16, i32, i64 and bool. Float to whole truncates and saturates.

    i64 to i32 wraps around; with ``checked``, a number that does not fit is an error.
    """

    @staticmethod
    def types(types: Types, attrs: Attrs) -> list[TensorType]:
        (x,) = types
        assert x
        allowed = (DType.f32, DType.f16, DType.boolean, *WHOLE)
        name = attr_str(attrs, "dtype")
        require(name in DType.__members__, "cast", f"there is no dtype {name!r}")
        dtype = DType[name]
        require(x.dtype in allowed and dtype in allowed, "cast", "not supported", types)
        narrows = (x.dtype, dtype) == (DType.i64, DType.i32)
        checked = attr_int(attrs, "checked", 0)
        require(not checked or narrows, "cast", "only i64 to i32 can be checked", types)
        return [TensorType(x.shape, dtype)]

    @staticmethod
    def run(arrays: Arrays, attrs: Attrs) -> list[Array]:
        dtype = DType[attr_str(attrs, "dtype")]
        x = arrays[0]
        if dtype in WHOLE and x.dtype.kind == "f":
            info = np.iinfo(dtype.numpy)
            whole = np.nan_to_num(np.trunc(x.astype(np.float64)), nan=0.0)
            beyond = -float(info.min)  # 2^31 or 2^63: the first that does not fit
            inside = np.clip(whole, -beyond, np.nextafter(beyond, 0)).astype(np.int64)
            inside = np.where(whole >= beyond, info.max, inside)
            return [np.clip(inside, info.min, info.max).astype(dtype.numpy)]
        if attr_int(attrs, "checked", 0):
            wrong = x[x != x.astype(np.int32)]
            if wrong.size:
                raise ExecutionError(f"there is no entry {int(wrong.flat[0])}")
        with np.errstate(over="ignore"):
            return [x.astype(dtype.numpy)]
