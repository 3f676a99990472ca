"""Matrix products. One whose right side is a constant becomes a linear layer."""

from __future__ import annotations

from typing import Any

from satchel.graph.ir import DType, Value
from satchel.torch.lowering import Lowering, Number
from satchel.torch.operators.registry import aten


def _swap_last(low: Lowering, x: Value) -> Value:
    rank = len(x.shape)
    return low.transpose(x, [*range(rank - 2), rank - 1, rank - 2])


@aten("linear")
def linear(low: Lowering, x: Value, weight: Value, bias: Value | None = None) -> Value:
    if weight.constant is None or len(weight.shape) != 2:
        product = matmul(low, x, _swap_last(low, weight) if len(weight.shape) > 1 else weight)
        return product if bias is None else low.add(product, bias)
    if bias is not None and (bias.constant is None or len(bias.shape) != 1):
        return low.add(low.emit("linear", x, weight), bias)
    return low.emit("linear", x, weight, *([bias] if bias else []))


def _whole_product(low: Lowering, left: Value, right: Value) -> Value:
    """Of whole numbers, which floats would round: all products, and their sums."""
    a, b = low.cast(left, low.dtype), low.cast(right, low.dtype)
    rows = low.reshape(a, (*a.shape, 1))
    columns = low.reshape(b, (*b.shape[:-2], 1, *b.shape[-2:]))
    products = low.mul(rows, columns)
    return low.reduce_sum(products, axes=(len(products.shape) - 2,), keepdims=0)


@aten("mm", "bmm", "matmul")
def matmul(low: Lowering, a: Value, b: Value) -> Value:
    if not a.shape or not b.shape:
        raise AssertionError("torch refuses products of single numbers")
    left = low.reshape(a, (1, *a.shape)) if len(a.shape) == 1 else a
    right = low.reshape(b, (*b.shape, 1)) if len(b.shape) == 1 else b
    if low.dtype != DType.f32:
        product = _whole_product(low, left, right)
    elif right.constant is not None and len(right.shape) == 2 and left.constant is None:
        product = low.emit("linear", left, _swap_last(low, right))
    else:
        product = low.emit("matmul", left, right)
    shape = product.shape
    if len(b.shape) == 1:
        shape = shape[:-1]
    if len(a.shape) == 1:
        shape = (*shape[:-2], *shape[-1:]) if len(b.shape) > 1 else shape[:-1]
    return low.reshape(product, shape)


@aten("mv", "dot")
def matrix_times_vector(low: Lowering, a: Value, b: Value) -> Value:
    return matmul(low, a, b)


@aten("_trilinear")
def trilinear(
    low: Lowering,
    a: Value,
    b: Value,
    c: Value,
    *settings: Any,
) -> Value:
    """A product of three, each with new dimensions where it has none, summed over some."""
    *new, summed = settings[:4]
    total: Value | None = None
    for value, places in zip((a, b, c), new, strict=True):
        shape = list(value.shape)
        for place in sorted(places):
            shape.insert(place, 1)
        wide = low.reshape(value, tuple(shape))
        total = wide if total is None else low.mul(total, wide)
    assert total is not None
    return low.reduce_sum(total, axes=tuple(sorted(summed)), keepdims=0)


@aten("addmm", "baddbmm", "addbmm")
def addmm(
    low: Lowering, bias: Value, a: Value, b: Value, *, beta: Number = 1, alpha: Number = 1
) -> Value:
    product = matmul(low, a, b)
    if low.operator == "addbmm":  # all products of a batch together
        product = low.reduce_sum(product, axes=(0,), keepdims=0)
    if low.dtype != DType.f32:
        product = low.mul(product, low.number(alpha, low.dtype))
        return low.add(product, low.mul(low.cast(bias, low.dtype), low.number(beta, low.dtype)))
    if alpha != 1:
        product = low.affine(product, scale=float(alpha))
    if beta == 0:
        return product
    return low.add(product, bias if beta == 1 else low.affine(bias, scale=float(beta)))
