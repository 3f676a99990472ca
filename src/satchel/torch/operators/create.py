"""Tensors that come from nothing: they are constants."""

from __future__ import annotations

from typing import Any

import numpy as np

from satchel.graph.ir import Sym, Value
from satchel.torch.lowering import Lowering, Number
from satchel.torch.operators.registry import OperatorError, aten


def _filled(low: Lowering, value: Number) -> Value:
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


@aten("zeros", "zeros_like", "new_zeros", "empty", "empty_like", "new_empty")
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
    if not all(isinstance(b, (int, float)) for b in bounds):
        raise OperatorError("counting up to a size that is symbolic")
    return low.constant(np.arange(*bounds).astype(low.dtype.numpy), "arange")


@aten("linspace")
def linspace(low: Lowering, start: float, stop: float, steps: int, **_options: Any) -> Value:
    return low.constant(np.linspace(start, stop, steps).astype(low.dtype.numpy), "linspace")


def _triangle(low: Lowering, x: Value, diagonal: int, lower: bool) -> Value:
    rows, columns = (low.known(d, "a triangle") for d in x.shape[-2:])
    inside = np.tri(rows, columns, diagonal if lower else diagonal - 1, dtype=bool)
    mask = low.constant(inside if lower else ~inside, "triangle")
    return low.where(mask, x, low.number(0, x.dtype))


@aten("tril")
def tril(low: Lowering, x: Value, diagonal: int = 0) -> Value:
    return _triangle(low, x, diagonal, True)


@aten("triu")
def triu(low: Lowering, x: Value, diagonal: int = 0) -> Value:
    return _triangle(low, x, diagonal, False)
