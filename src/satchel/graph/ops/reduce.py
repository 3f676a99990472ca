"""Reductions over some axes, which keep their place with size 1 if ``keepdims`` is 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.graph.ops.elementwise import WHOLE
from satchel.graph.ops.registry import Arrays, Attrs, Trait, Types, define, require
from satchel.graph.types import DType, Shape, TensorType, attr_int, attr_ints

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
            allowed = (DType.f32,) if name == "reduce_mean" else (DType.f32, *WHOLE)
            wanted = " or ".join(d.name for d in allowed)
            require(x.dtype in allowed, name, f"x must be {wanted}", types)
            return [TensorType(reduced_shape(name, types, attrs), x.dtype)]

        @staticmethod
        def run(arrays: Arrays, attrs: Attrs) -> list[Array]:
            axes = attr_ints(attrs, "axes")
            keep = bool(attr_int(attrs, "keepdims", 0))
            x = arrays[0]
            wide = x.astype(np.float64) if x.dtype == np.float32 else x.astype(np.int64)
            # Whole numbers wrap around, and what wraps in 64 bits wraps in 32.
            return [np.asarray(function(wide, axis=axes, keepdims=keep)).astype(x.dtype)]

    define(name, 1, "axes", "keepdims", traits=[Trait.reduction])(Reduction)


_define_reduction("reduce_sum", np.sum)
_define_reduction("reduce_prod", np.prod)
_define_reduction("reduce_mean", np.mean)
_define_reduction("reduce_max", np.max)
_define_reduction("reduce_min", np.min)
