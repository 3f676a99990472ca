"""Normalisation over the last dimension, and softmax."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.graph.ops.registry import Arrays, Attrs, Trait, Types, define, require
from satchel.graph.ops.requantize import check_step, codes_of
from satchel.graph.types import DType, TensorType, attr_float, attr_int

Array = NDArray[Any]


def _norm_types(op: str, types: Types, attrs: Attrs) -> list[TensorType]:
    x = types[0]
    assert x
    require(x.dtype == DType.f32 and len(x.shape) >= 1, op, "x must be f32", types)
    for vector in types[1:]:
        fits = vector is None or vector == TensorType(x.shape[-1:], DType.f32)
        require(fits, op, "weight and bias must be as long as x's last dimension", types)
    require(attr_float(attrs, "eps") >= 0, op, "eps must not be negative")
    return [x]


@define("rms_norm", 2, "eps", traits=[Trait.row_wise])
class RmsNorm:
    """x / sqrt(mean(x²) + eps) * weight."""

    @staticmethod
    def types(types: Types, attrs: Attrs) -> list[TensorType]:
        return _norm_types("rms_norm", types, attrs)

    @staticmethod
    def run(arrays: Arrays, attrs: Attrs) -> list[Array]:
        x = arrays[0].astype(np.float64)
        mean_square = np.mean(x * x, axis=-1, keepdims=True)
        out = x / np.sqrt(mean_square + attr_float(attrs, "eps")) * arrays[1]
        return [out.astype(np.float32)]


@define("layer_norm", (2, 3), "eps", "out_scale", "out_zero", traits=[Trait.row_wise])
class LayerNorm:
    """(x - mean) / sqrt(variance + eps) * weight + bias, with an out_scale as codes of 8 bits."""

    @staticmethod
    def types(types: Types, attrs: Attrs) -> list[TensorType]:
        (type,) = _norm_types("layer_norm", types, attrs)
        if "out_scale" not in attrs:
            return [type]
        check_step("layer_norm", attrs, "out_")
        return [TensorType(type.shape, DType.u8)]

    @staticmethod
    def run(arrays: Arrays, attrs: Attrs) -> list[Array]:
        x = arrays[0].astype(np.float64)
        centred = x - x.mean(axis=-1, keepdims=True)
        variance = np.mean(centred * centred, axis=-1, keepdims=True)
        out = centred / np.sqrt(variance + attr_float(attrs, "eps")) * arrays[1]
        if len(arrays) > 2 and arrays[2] is not None:
            out = out + arrays[2]
        numbers = out.astype(np.float32)
        return [codes_of(numbers, attrs, "out_") if "out_scale" in attrs else numbers]


@define("softmax", 1, "axis", traits=[Trait.one_axis])
class Softmax:
    @staticmethod
    def types(types: Types, attrs: Attrs) -> list[TensorType]:
        (x,) = types
        assert x
        axis = attr_int(attrs, "axis", -1)
        require(x.dtype == DType.f32, "softmax", "x must be f32", types)
        require(-len(x.shape) <= axis < len(x.shape), "softmax", f"no axis {axis}", types)
        return [x]

    @staticmethod
    def run(arrays: Arrays, attrs: Attrs) -> list[Array]:
        axis = attr_int(attrs, "axis", -1)
        x = arrays[0].astype(np.float64)
        powers = np.exp(x - x.max(axis=axis, keepdims=True))
        return [(powers / powers.sum(axis=axis, keepdims=True)).astype(np.float32)]
