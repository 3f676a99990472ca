"""Tensors that come from nothing: they are constants."""

from __future__ import annotations

from typing import Any

import numpy as np

from satchel.graph.ir import Dim, DType, Sym, Value
from satchel.torch.lowering import Lowering, Number
from satchel.torch.operators.registry import OperatorError, aten


def _filled(low: Lowering, value: Number | Value) -> Value:
    if isinstance(value, Value):
        return low.expand(low.cast(value, low.dtype), low.shape, low.symbolic)
    one = low.constant(np.asarray(value, low.dtype.numpy), "number")
    if any(isinstance(d, Sym) for d in low.shape):
        return low.expand(one, low.shape, low.symbolic)
    sizes = tuple(d for d in low.shape if isinstance(d, int))
    return low.constant(np.full(sizes, value, low.dtype.numpy), "filled")


@aten("full", "new_full")
def full(low: Lowering, *arguments: Any, **_options: Any) -> Value:
    return _filled(low, arguments[-1])


@aten("full_like")
def full_like(low: Lowering, like: Value, value: Number, **_options: Any) -> Value:
    return _filled(low, value)


@aten("zeros", "zeros_like", "new_zeros", "empty", "empty_like", "new_empty", "empty_strided")
def zeros(low: Lowering, *_arguments: Any, **_options: Any) -> Value:
    return _filled(low, 0)


@aten("ones", "ones_like", "new_ones")
def ones(low: Lowering, *_arguments: Any, **_options: Any) -> Value:
    return _filled(low, 1)


@aten("scalar_tensor")
def scalar(low: Lowering, value: Number, **_options: Any) -> Value:
    return low.constant(np.asarray(value, low.dtype.numpy), "number")


@aten("arange")
def arange(low: Lowering, *bounds: Any, **_options: Any) -> Value:
    start, stop, step = (0, *bounds, 1) if len(bounds) == 1 else (*bounds, 1)[:3]
    if all(isinstance(b, (int, float)) for b in (start, stop, step)):
        if low.dtype != DType.f32:  # so many as the bounds say, of steps that are whole before
            whole = int(start) + int(step) * np.arange(low.known(low.shape[0], "counting"))
            return low.constant(whole.astype(low.dtype.numpy), "arange")
        return low.constant(np.arange(start, stop, step).astype(low.dtype.numpy), "arange")
    if isinstance(step, Sym):
        raise OperatorError("counting by steps of a size that is symbolic")
    numbers = low.cast(low.count(low.shape[0]), low.dtype)
    if step != 1:
        numbers = low.mul(numbers, low.number(step, low.dtype))
    if not isinstance(start, Sym) and start == 0:
        return numbers
    return low.add(numbers, low.operand(start, low.dtype))


@aten("_local_scalar_dense", "item")
def number_of(low: Lowering, x: Value) -> Value:
    """A number of the host stays where it is: what is computed with it takes a tensor as well."""
    return low.reshape(x, ())


@aten("linspace")
def linspace(low: Lowering, start: float, stop: float, steps: int, **_options: Any) -> Value:
    return low.constant(np.linspace(start, stop, steps).astype(low.dtype.numpy), "linspace")


def triangle(low: Lowering, rows: Dim, columns: Dim, diagonal: int, lower: bool) -> Value:
    """Whether each place of a matrix is on or below (or above) a diagonal."""
    if not isinstance(rows, Sym) and not isinstance(columns, Sym):
        inside = np.tri(rows, columns, diagonal if lower else diagonal - 1, dtype=bool)
        return low.constant(inside if lower else ~inside, "triangle")
    down = low.reshape(low.count(rows), (rows, 1))
    moved = low.add(down, low.number(diagonal, DType.i32))
    across = low.reshape(low.count(columns), (1, columns))
    return low.compare(across, moved, kind="le" if lower else "ge")


def _triangle(low: Lowering, x: Value, diagonal: int, lower: bool) -> Value:
    mask = triangle(low, x.shape[-2], x.shape[-1], diagonal, lower)
    whole = low.cast(x, DType.i32) if x.dtype == DType.boolean else x
    return low.cast(low.where(mask, whole, low.number(0, whole.dtype)), x.dtype)


@aten("tril")
def tril(low: Lowering, x: Value, diagonal: int = 0) -> Value:
    return _triangle(low, x, diagonal, True)


@aten("triu")
def triu(low: Lowering, x: Value, diagonal: int = 0) -> Value:
    return _triangle(low, x, diagonal, False)
