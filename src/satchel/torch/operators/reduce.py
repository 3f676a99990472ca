"""Reductions, and sums along an axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from satchel.graph.ir import DType, Sym, Value
from satchel.torch.lowering import Lowering, axes_of, axis_of
from satchel.torch.operators.elementwise import maximum, minimum
from satchel.torch.operators.registry import OperatorError, aten

Axes = int | Sequence[int] | None


def _reduce(low: Lowering, op: str, x: Value, axes: Axes, keep: bool) -> Value:
    """Whole numbers stay whole, in the width of the result."""
    places = axes_of(axes, len(x.shape))
    whole = low.dtype in (DType.i32, DType.i64) and op != "reduce_mean"
    result = low.emit(
        op, low.cast(x, low.dtype if whole else DType.f32), axes=places, keepdims=int(keep)
    )
    return low.cast(result, low.dtype)


@aten("sum")
def total(
    low: Lowering, x: Value, axes: Axes = None, keepdim: bool = False, *, dtype: Any = None
) -> Value:
    return _reduce(low, "reduce_sum", x, axes, keepdim)


@aten("prod")
def product(
    low: Lowering, x: Value, axes: Axes = None, keepdim: bool = False, *, dtype: Any = None
) -> Value:
    return _reduce(low, "reduce_prod", x, axes, keepdim)


@aten("mean")
def mean(
    low: Lowering, x: Value, axes: Axes = None, keepdim: bool = False, *, dtype: Any = None
) -> Value:
    return _reduce(low, "reduce_mean", x, axes, keepdim)


@aten("amax")
def amax(low: Lowering, x: Value, axes: Axes = None, keepdim: bool = False) -> Value:
    return _reduce(low, "reduce_max", x, axes, keepdim)


@aten("amin")
def amin(low: Lowering, x: Value, axes: Axes = None, keepdim: bool = False) -> Value:
    return _reduce(low, "reduce_min", x, axes, keepdim)


@aten("max", "min")
def extreme(
    low: Lowering, x: Value, dim: int | None = None, keepdim: bool = False
) -> Value | list[Value]:
    """With a dimension, the extremes and where they are."""
    op = f"reduce_{low.operator}"
    if isinstance(dim, Value):
        return (maximum if low.operator == "max" else minimum)(low, x, dim)
    if dim is None:
        return _reduce(low, op, x, None, False)
    axis = axis_of(dim, len(x.shape))
    return [_reduce(low, op, x, axis, keepdim), _extreme_place(low, x, axis, keepdim, op)]


def _extreme_place(low: Lowering, x: Value, dim: int | None, keep: bool, op: str) -> Value:
    """Where the first of the greatest (or least) is."""
    if not x.shape:
        return low.constant(np.zeros((), np.int64), "place")
    if x.dtype in (DType.i32, DType.i64):  # floats would not tell all of them apart
        axes = axes_of(dim, len(x.shape))
        most = low.emit(op, x, axes=axes, keepdims=1)
        numbers = low.floats(low.compare(x, most, kind="eq"))
    else:
        numbers = low.floats(x) if op == "reduce_max" else low.neg(low.floats(x))
    if dim is None:
        found = low.emit("argmax", low.emit("reshape", numbers, shape=(-1,)), axis=0)
        found = low.reshape(found, tuple(1 for _ in x.shape) if keep else ())
    else:
        axis = axis_of(dim, len(x.shape))
        found = low.emit("argmax", numbers, axis=axis, keepdims=int(keep))
    return low.cast(found, DType.i64)


@aten("argmax", "argmin")
def argmax(low: Lowering, x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    op = "reduce_max" if low.operator == "argmax" else "reduce_min"
    return _extreme_place(low, x, dim, keepdim, op)


def _truth(low: Lowering, op: str, x: Value, axes: Axes, keep: bool) -> Value:
    if x.type.is_empty:  # any of none is false, and all of none is true
        sizes = tuple(low.known(d, "none of them") for d in low.shape)
        return low.constant(np.full(sizes, op == "reduce_min"), "truth")
    return _reduce(low, op, low.cast(x, DType.boolean), axes, keep)


@aten("any")
def any_of(low: Lowering, x: Value, axes: Axes = None, keepdim: bool = False) -> Value:
    return _truth(low, "reduce_max", x, axes, keepdim)


@aten("all")
def all_of(low: Lowering, x: Value, axes: Axes = None, keepdim: bool = False) -> Value:
    return _truth(low, "reduce_min", x, axes, keepdim)


def _variance(low: Lowering, x: Value, axes: Axes, correction: float, keep: bool) -> Value:
    places = axes_of(axes, len(x.shape))
    centred = low.sub(x, low.reduce_mean(x, axes=places, keepdims=1))
    mean_square = low.reduce_mean(low.mul(centred, centred), axes=places, keepdims=int(keep))
    if not correction:
        return mean_square
    sizes = [x.shape[i] for i in places]
    if any(isinstance(size, Sym) for size in sizes):
        total = low.number(1.0)
        for size in sizes:
            total = low.mul(total, low.cast(low.operand(size, DType.i32), DType.f32))
        return low.mul(mean_square, low.div(total, low.sub(total, low.number(correction))))
    count = math.prod(low.known(size, "a variance") for size in sizes)
    if count <= correction:
        raise OperatorError("a variance of too few numbers")
    return low.affine(mean_square, scale=count / (count - correction))


def _correction(unbiased: Any, correction: Any) -> float:
    if isinstance(unbiased, bool):
        return float(unbiased)
    return 1.0 if correction is None else float(correction)


@aten("var")
def var(
    low: Lowering,
    x: Value,
    axes: Any = None,
    unbiased: Any = None,
    keepdim: bool = False,
    *,
    correction: Any = None,
) -> Value:
    if isinstance(axes, bool):
        axes, unbiased = None, axes
    return _variance(low, x, axes, _correction(unbiased, correction), keepdim)


@aten("std")
def std(
    low: Lowering,
    x: Value,
    axes: Any = None,
    unbiased: Any = None,
    keepdim: bool = False,
    *,
    correction: Any = None,
) -> Value:
    return low.sqrt(var(low, x, axes, unbiased, keepdim, correction=correction))


@aten("var_mean")
def var_mean(
    low: Lowering, x: Value, axes: Axes = None, *, correction: Any = None, keepdim: bool = False
) -> list[Value]:
    spread = _variance(low, x, axes, _correction(None, correction), keepdim)
    return [spread, _reduce(low, "reduce_mean", x, axes, keepdim)]


@aten("logsumexp")
def logsumexp(low: Lowering, x: Value, axes: Axes, keepdim: bool = False) -> Value:
    places = axes_of(axes, len(x.shape))
    x = low.floats(x)
    most = low.reduce_max(x, axes=places, keepdims=1)
    # An infinity less itself is no number; as the largest it is the result, whatever is taken off.
    endless = low.compare(low.abs(most), low.constant(np.float32(np.inf)), kind="eq")
    most = low.where(endless, low.number(0.0), most)
    total = low.reduce_sum(low.exp(low.sub(x, most)), axes=places, keepdims=1)
    return low.reshape(low.add(low.log(total), most), low.shape)


@aten("cumsum", "cumprod")
def cumulate(low: Lowering, x: Value, dim: int, *, dtype: Any = None) -> Value:
    if not x.shape:
        return low.cast(x, low.dtype)
    kind = low.operator.removeprefix("cum")
    return low.emit("cumulate", low.cast(x, low.dtype), axis=axis_of(dim, len(x.shape)), kind=kind)
