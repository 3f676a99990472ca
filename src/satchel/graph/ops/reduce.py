"""Reductions over some axes, which keep their place with size 1 if ``keepdims`` is 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.graph.ir import DType, Shape, TensorType, attr_int, attr_ints
from satchel.graph.ops.registry import Arrays, Attrs, Types, define, require

Array = NDArray[Any]


def reduced_shape(op: str, types: Types, attrs: Attrs) -> Shape:
    """What ``axes`` and ``keepdims`` leave of the first input's shape."""
    x = types[0]
    assert x
    axes, keep = attr_ints(attrs, "axes"), attr_int(attrs, "keepdims", 0)
    inside = all(0 <= a < len(x.shape) for a in axes)
    require(inside and len(set(axes)) == len(axes), op, f"bad axes {axes}", types)
    return tuple(1 if i in axes else d for i, d in enumerate(x.shape) if keep or i not in axes)


def _define_reduction(name: str, function: Callable[..., Array]) -> None:
    class Reduction:
        @staticmethod
        def types(types: Types, attrs: Attrs) -> list[TensorType]:
            (x,) = types
            assert x
            require(x.dtype == DType.f32, name, "x must be f32", types)
            return [TensorType(reduced_shape(name, types, attrs), x.dtype)]

        @staticmethod
        def run(arrays: Arrays, attrs: Attrs) -> list[Array]:
            axes = attr_ints(attrs, "axes")
            keep = bool(attr_int(attrs, "keepdims", 0))
            wide = arrays[0].astype(np.float64)
            return [np.asarray(function(wide, axis=axes, keepdims=keep), np.float32)]

    define(name, 1, "axes", "keepdims")(Reduction)


_define_reduction("reduce_sum", np.sum)
_define_reduction("reduce_mean", np.mean)
_define_reduction("reduce_max", np.max)
_define_reduction("reduce_min", np.min)
