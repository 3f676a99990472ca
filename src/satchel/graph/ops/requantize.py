"""Values of 8 bits between the integer layers: made, looked up, added, multiplied, averaged.

A code stands for ``(code - zero) * scale``. All steps are 32-bit floats, rounded one after the
other, and a result t becomes ``clip(rint(t * (1 / scale)) + zero, 0, 255)``, halves to even.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.graph.ops.activation import activate, check_activation
from satchel.graph.ops.elementwise import broadcast
from satchel.graph.ops.reduce import reduced_shape
from satchel.graph.ops.registry import Arrays, Attrs, Trait, Types, define, require
from satchel.graph.types import DType, TensorType, attr_float, attr_int, attr_ints

Array = NDArray[Any]


def check_step(op: str, attrs: Attrs, prefix: str = "") -> None:
    """A scale that can be divided by, and a zero that is a code."""
    scale = attr_float(attrs, f"{prefix}scale")
    require(1e-30 <= scale <= 1e30, op, f"the {prefix}scale {scale} is out of range")
    zero = attr_int(attrs, f"{prefix}zero", 0)
    require(0 <= zero <= 255, op, f"the {prefix}zero {zero} is not a code")


def numbers_of(codes: Array, attrs: Attrs, prefix: str = "") -> Array:
    centred = codes.astype(np.int32) - attr_int(attrs, f"{prefix}zero", 0)
    numbers: Array = centred.astype(np.float32) * np.float32(attr_float(attrs, f"{prefix}scale"))
    return numbers


def codes_of(numbers: Array, attrs: Attrs, prefix: str = "") -> Array:
    inverse = np.float32(1) / np.float32(attr_float(attrs, f"{prefix}scale"))
    # What is not a number becomes zero, infinities the outermost codes.
    ratio = np.nan_to_num(numbers * inverse, nan=0.0, posinf=1e9, neginf=-1e9)
    steps = np.rint(ratio).astype(np.float64)
    codes: Array = np.clip(steps + attr_int(attrs, f"{prefix}zero", 0), 0, 255)
    return codes.astype(np.uint8)


@define("quantize", 1, "scale", "zero", traits=[Trait.unary])
class Quantize:
    @staticmethod
    def types(types: Types, attrs: Attrs) -> list[TensorType]:
        (x,) = types
        assert x
        require(x.dtype == DType.f32, "quantize", "x must be f32", types)
        check_step("quantize", attrs)
        return [TensorType(x.shape, DType.u8)]

    @staticmethod
    def run(arrays: Arrays, attrs: Attrs) -> list[Array]:
        return [codes_of(arrays[0], attrs)]


@define("dequantize", 1, "scale", "zero", traits=[Trait.unary])
class Dequantize:
    @staticmethod
    def types(types: Types, attrs: Attrs) -> list[TensorType]:
        (x,) = types
        assert x
        require(x.dtype == DType.u8, "dequantize", "x must be u8", types)
        check_step("dequantize", attrs)
        return [TensorType(x.shape)]

    @staticmethod
    def run(arrays: Arrays, attrs: Attrs) -> list[Array]:
        return [numbers_of(arrays[0], attrs)]


@define("lookup", 2, traits=[Trait.unary])
class Lookup:
    """table[x]: any function of one number, and a change of scale, in 8 bits."""

    @staticmethod
    def types(types: Types, _attrs: Attrs) -> list[TensorType]:
        x, table = types
        assert x and table
        require(x.dtype == DType.u8, "lookup", "x must be u8", types)
        fits = table == TensorType((256,), DType.u8)
        require(fits, "lookup", "the table must be u8 [256]", types)
        return [x]

    @staticmethod
    def run(arrays: Arrays, _attrs: Attrs) -> list[Array]:
        return [arrays[1][arrays[0]]]


_PAIR = ("a_scale", "a_zero", "b_scale", "b_zero", "out_scale", "out_zero", "activation")


def _define_pair(name: str, function: Any) -> None:
    class Pair:
        @staticmethod
        def types(types: Types, attrs: Attrs) -> list[TensorType]:
            a, b = types
            assert a and b
            require(a.dtype == b.dtype == DType.u8, name, "both inputs must be u8", types)
            for prefix in ("a_", "b_", "out_"):
                check_step(name, attrs, prefix)
            check_activation(name, attrs)
            return [TensorType(broadcast(a.shape, b.shape, name), DType.u8)]

        @staticmethod
        def run(arrays: Arrays, attrs: Attrs) -> list[Array]:
            a, b = numbers_of(arrays[0], attrs, "a_"), numbers_of(arrays[1], attrs, "b_")
            return [codes_of(activate(function(a, b), attrs), attrs, "out_")]

    define(name, 2, *_PAIR, traits=[Trait.elementwise])(Pair)


_define_pair("qadd", np.add)
_define_pair("qmul", np.multiply)


@define("qmean", 1, "axes", "keepdims", "x_scale", "x_zero", "out_scale", "out_zero")
class QMean:
    """reduce_mean of codes: float(sum(x - x_zero)) * (x_scale / count)."""

    @staticmethod
    def types(types: Types, attrs: Attrs) -> list[TensorType]:
        (x,) = types
        assert x
        require(x.dtype == DType.u8, "qmean", "x must be u8", types)
        for prefix in ("x_", "out_"):
            check_step("qmean", attrs, prefix)
        return [TensorType(reduced_shape("qmean", types, attrs), DType.u8)]

    @staticmethod
    def run(arrays: Arrays, attrs: Attrs) -> list[Array]:
        axes, keep = attr_ints(attrs, "axes"), bool(attr_int(attrs, "keepdims", 0))
        centred = arrays[0].astype(np.int64) - attr_int(attrs, "x_zero", 0)
        total = np.asarray(centred.sum(axis=axes, keepdims=keep))
        count = np.prod([arrays[0].shape[a] for a in axes], dtype=np.float64)
        factor = np.float32(np.float32(attr_float(attrs, "x_scale")) / np.float32(count))
        return [codes_of(total.astype(np.float32) * factor, attrs, "out_")]
