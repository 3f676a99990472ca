"""Attention of all queries over all keys, without a cache: encoders and vision transformers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.errors import ExecutionError
from satchel.graph.ops.registry import Arrays, Attrs, Types, check_rows, define, require
from satchel.graph.types import DType, Shape, TensorType, attr_float, same_elements

Array = NDArray[Any]


def _check_bias(op: str, types: Types, bias: TensorType, scores: Shape) -> None:
    """A bias is [b, h, t, S]: b divides the batch, h and t are 1 or those of the queries."""
    batch, heads, queries, keys = scores
    require(len(bias.shape) == 4 and bias.dtype == DType.f32, op, "bad bias", types)
    b, h, t, s = bias.shape
    repeats = isinstance(b, int) and isinstance(batch, int) and batch % b == 0
    fits = (b in (1, batch) or repeats) and h in (1, heads) and t in (1, queries) and s == keys
    require(fits, op, f"the bias does not fit scores {[str(d) for d in scores]}", types)


def attend(q: Array, k: Array, v: Array, bias: Array | None, scale: float) -> Array:
    """softmax(q k scale + bias) v, in float64; q [B, T, H, D], k and v [B, S, H, …].

    A key whose bias is -inf is not seen, and a query that sees none gets 0.
    """
    q, k, v = (a.astype(np.float64) for a in (q, k, v))
    scores = np.einsum("bthd,bshd->bhts", q, k) * scale
    if bias is not None:
        # Window n of every image has the bias n.
        scores = scores + np.tile(bias, (len(q) // len(bias), 1, 1, 1))
    largest = scores.max(axis=-1, keepdims=True)
    blind = np.isneginf(largest)
    powers = np.exp(scores - np.where(blind, 0, largest))
    weights = powers / np.where(blind, 1, powers.sum(axis=-1, keepdims=True))
    out: Array = np.einsum("bhts,bshd->bthd", weights, v).astype(np.float32)
    return out


@define("attention_full", (3, 4), "scale")
class AttentionFull:
    """q [B, T, H, D] over k [B, S, H, D] and v [B, S, H, E], with a bias added to the scores.

    The bias [b, h, T, S] repeats along the batch: entry n has the bias n % b. Where it is -inf for
    all keys, the result is 0.
    """

    @staticmethod
    def types(types: Types, attrs: Attrs) -> list[TensorType]:
        q, k, v = types[:3]
        bias = types[3] if len(types) > 3 else None
        assert q and k and v
        op = "attention_full"
        for t in (q, k, v):
            require(len(t.shape) == 4 and t.dtype == DType.f32, op, "need f32 of rank 4", types)
            known = isinstance(t.shape[2], int) and isinstance(t.shape[3], int)
            require(known, op, "heads and their sizes must be known", types)
        batch, queries, heads, dim = q.shape
        fits = k.shape[::2] == (batch, heads) and k.shape[3] == dim and k.shape[:3] == v.shape[:3]
        require(fits, op, "q, k and v do not fit", types)
        if bias is not None:
            _check_bias(op, types, bias, (batch, heads, queries, k.shape[1]))
        attr_float(attrs, "scale")
        return [TensorType((batch, queries, heads, v.shape[3]))]

    @staticmethod
    def run(arrays: Arrays, attrs: Attrs) -> list[Array]:
        q, k, v, bias = (*arrays, None)[:4]
        assert q is not None and k is not None and v is not None
        return [attend(q, k, v, bias, attr_float(attrs, "scale"))]


@define("attention_qkv", (1, 4), "scale")
class AttentionQKV:
    """attention_full of the queries, keys and values that one layer made: [B, T, 3, H, D].

    With ``rows`` (i32 [W, N], a permutation of x's B * T rows), the tokens of entry n are the rows
    rows[n], and their results are in the same rows. With ``kinds`` (i32), entry n has the bias
    kinds[n % len(kinds)]. All inputs: x, bias?, rows?, kinds?
    """

    @staticmethod
    def types(types: Types, attrs: Attrs) -> list[TensorType]:
        qkv = types[0]
        assert qkv
        op = "attention_qkv"
        fits = len(qkv.shape) == 5 and qkv.dtype == DType.f32 and qkv.shape[2] == 3
        require(fits, op, "need f32 [B, T, 3, H, D]", types)
        check_windows(op, types)
        attr_float(attrs, "scale")
        batch, tokens, _, heads, dim = qkv.shape
        return [TensorType((batch, tokens, heads, dim))]

    @staticmethod
    def run(arrays: Arrays, attrs: Attrs) -> list[Array]:
        qkv, bias, rows, kinds = (*arrays, None, None, None)[:4]
        assert qkv is not None
        windows, bias = windows_of(qkv, bias, rows, kinds)
        q, k, v = np.moveaxis(windows, 2, 0)
        return [rows_back(attend(q, k, v, bias, attr_float(attrs, "scale")), qkv, rows)]


def check_windows(op: str, types: Types) -> None:
    """x [B, T, 3, H, D], bias, rows and kinds, at the places 0 to 3, fit."""
    qkv, bias, rows, kinds = (*types, None, None, None)[:4]
    assert qkv
    batch, tokens, _, heads, dim = qkv.shape
    known = isinstance(heads, int) and isinstance(dim, int)
    require(known, op, "heads and their sizes must be known", types)
    if rows is not None:
        fits = len(rows.shape) == 2 and rows.dtype == DType.i32
        require(fits and same_elements(rows.shape, (batch, tokens)), op, "bad rows", types)
        batch, tokens = rows.shape
    if kinds is not None:
        fits = len(kinds.shape) == 1 and kinds.dtype == DType.i32
        require(fits and bias is not None, op, "bad kinds", types)
        fits = isinstance(batch, int) and isinstance(kinds.shape[0], int)
        require(fits and batch % kinds.shape[0] == 0, op, "bad kinds", types)  # type: ignore[operator]
        assert bias is not None and bias.shape
        # Which of the biases an entry has is not known here; all have the same shape.
        bias = TensorType((1, *bias.shape[1:]), bias.dtype)
    if bias is not None:
        _check_bias(op, types, bias, (batch, heads, tokens, tokens))


def windows_of(
    qkv: Array, bias: Array | None, rows: Array | None, kinds: Array | None
) -> tuple[Array, Array | None]:
    """The tokens of each entry, [W, N, 3, H, D], and the biases that repeat along them."""
    if bias is not None and kinds is not None:
        check_rows(kinds, len(bias), "bias")
        bias = bias[kinds]
    if rows is None:
        return qkv, bias
    count = rows.size
    check_rows(rows, count, "row")
    if len(np.unique(rows)) != count:
        raise ExecutionError("attention: rows are named more than once")
    return qkv.reshape(count, *qkv.shape[2:])[rows], bias


def rows_back(out: Array, qkv: Array, rows: Array | None) -> Array:
    """Results [W, N, H, D] in the order of x's rows."""
    if rows is None:
        return out
    flat = np.empty((rows.size, *out.shape[2:]), out.dtype)
    flat[rows.reshape(-1)] = out.reshape(rows.size, *out.shape[2:])
    return flat.reshape(*qkv.shape[:2], *out.shape[2:])
