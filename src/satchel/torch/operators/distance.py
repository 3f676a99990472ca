"""Norms, distances between rows, and sums of embeddings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from satchel.graph.ir import Dim, DType, Sym, Value
from satchel.torch.lowering import Lowering, axes_of, product_of
from satchel.torch.operators.index import embedding, size_of
from satchel.torch.operators.registry import OperatorError, aten


def _norm(low: Lowering, x: Value, order: float, axes: tuple[int, ...], keep: int) -> Value:
    """Of any order: 0 counts, the infinities are extremes."""
    if order == 2:
        return low.sqrt(low.reduce_sum(low.mul(x, x), axes=axes, keepdims=keep))
    if order == 0:
        counted = low.floats(low.compare(x, low.number(0.0), kind="ne"))
        return low.reduce_sum(counted, axes=axes, keepdims=keep)
    size = low.abs(x)
    if math.isinf(order):
        op = "reduce_max" if order > 0 else "reduce_min"
        return low.emit(op, size, axes=axes, keepdims=keep)
    if order == 1:
        return low.reduce_sum(size, axes=axes, keepdims=keep)
    powers = low.emit("pow", size, low.number(float(order)))
    total = low.reduce_sum(powers, axes=axes, keepdims=keep)
    return low.emit("pow", total, low.number(1 / order))


@aten("linalg_vector_norm")
def vector_norm(
    low: Lowering,
    x: Value,
    order: float = 2,
    axes: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: Any = None,
) -> Value:
    return _norm(low, low.floats(x), float(order), axes_of(axes, len(x.shape)), int(keepdim))


@aten("_cdist_forward", "cdist")
def cdist(low: Lowering, a: Value, b: Value, order: float = 2.0, *_mode: Any) -> Value:
    rows = low.reshape(a, (*a.shape[:-1], 1, a.shape[-1]))
    columns = low.reshape(b, (*b.shape[:-2], 1, *b.shape[-2:]))
    difference = low.sub(rows, columns)
    return _norm(low, difference, float(order), (len(difference.shape) - 1,), 0)


@aten("_pdist_forward")
def pdist(low: Lowering, x: Value, order: float = 2.0) -> Value:
    """The distance of each pair of rows, once."""
    count = low.known(x.shape[0], "pdist")
    rows, columns = np.triu_indices(count, 1)
    difference = low.sub(low.take(x, rows, 0), low.take(x, columns, 0))
    return _norm(low, difference, float(order), (1,), 0)


@aten("_embedding_bag", "_embedding_bag_forward_only")
def embedding_bag(
    low: Lowering,
    table: Value,
    ids: Value,
    offsets: Value,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    weights: Value | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> list[Value | None]:
    """Sums, means or maxima of runs of embeddings; each begins where its offset says."""
    if low.used - {0}:
        raise OperatorError("more than the sums")
    count, bags = product_of(ids.shape), low.shape[0]
    starts = low.index(offsets)
    if include_last_offset:
        starts = _first_rows(low, starts, bags)
    numbers = low.reshape(low.count(count), (count, 1))
    begun = low.compare(low.reshape(starts, (1, bags)), numbers, kind="le")
    bag = low.reduce_sum(low.cast(begun, DType.i32), axes=(1,), keepdims=1)
    bag = low.sub(bag, low.number(1, DType.i32))
    found = embedding(low, table, ids)
    if padding_idx >= 0:  # which is no part of its bag: it goes to one behind the last
        padding = low.compare(low.index(ids), low.number(padding_idx, DType.i32), kind="eq")
        bag = low.where(low.reshape(padding, (count, 1)), low.operand(bags, DType.i32), bag)
    if weights is not None:
        found = low.mul(found, low.reshape(weights, (count, 1)))
    width = low.known(low.shape[1], "embedding_bag")
    places = low.expand(bag, (count, width), bag)
    start = -np.inf if mode == 2 else 0.0
    empty = low.expand(low.constant(np.full((1, 1), start, np.float32)), (bags + 1, width))
    kind = "max" if mode == 2 else "add"
    total = low.scatter(empty, places, found, axis=0, kind=kind)
    ones = low.expand(low.constant(np.ones((1, 1), np.float32)), (count, 1), bag)
    none = low.expand(low.constant(np.zeros((1, 1), np.float32)), (bags + 1, 1))
    counts = low.scatter(none, bag, ones, axis=0, kind="add")
    if mode == 1:
        total = low.div(total, low.maximum(counts, low.number(1.0)))
    if mode == 2:
        nothing = low.compare(counts, low.number(0.0), kind="eq")
        total = low.where(nothing, low.number(0.0), total)
    return [_first_rows(low, total, bags), None, None, None]


def _first_rows(low: Lowering, x: Value, count: Dim) -> Value:
    if isinstance(count, Sym):
        return low.emit("take", x, low.count(count), axis=0)
    return low.slice(x, 0, 0, count)


@aten("embedding_renorm")
def embedding_renorm(
    low: Lowering, table: Value, ids: Value, max_norm: float, norm_type: float
) -> Value:
    """Those rows that are named become as short as max_norm, if they are longer."""
    count, width = size_of(low, ids), low.known(table.shape[1], "embedding_renorm")
    rows = embedding(low, table, low.reshape(ids, (count,)))
    length = _norm(low, rows, float(norm_type), (1,), 1)
    longer = low.compare(length, low.number(float(max_norm)), kind="gt")
    factor = low.div(low.number(float(max_norm)), low.affine(length, shift=1e-7))
    shorter = low.mul(rows, low.where(longer, factor, low.number(1.0)))
    places = low.expand(low.reshape(low.index(ids), (count, 1)), (count, width))
    return low.scatter(table, places, shorter, axis=0, kind="set")
