"""Scaled dot-product attention."""

from __future__ import annotations

import math

import numpy as np

from satchel.graph.ir import DType, Sym, Value
from satchel.torch.lowering import Lowering, axis_of
from satchel.torch.operators.create import triangle
from satchel.torch.operators.registry import OperatorError, aten


@aten("scaled_dot_product_attention")
def attention(
    low: Lowering,
    q: Value,
    k: Value,
    v: Value,
    mask: Value | None = None,
    dropout: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Value:
    """softmax(q k^T * scale + mask) v, over [..., tokens, size]."""
    size = low.known(q.shape[-1], "attention")
    if enable_gqa:
        groups = low.known(q.shape[-3], "attention") // low.known(k.shape[-3], "attention")
        order = np.repeat(np.arange(low.known(k.shape[-3], "attention")), groups)
        k, v = (low.take(x, order, len(x.shape) - 3) for x in (k, v))
    factor = 1 / math.sqrt(size) if scale is None else float(scale)
    if is_causal:
        mask = triangle(low, q.shape[-2], k.shape[-2], 0, True)
    bias = None if mask is None else _bias(low, mask)
    rank = len(q.shape)
    same_batch = len(k.shape) == len(v.shape) == rank and q.shape[:-2] == k.shape[:-2]
    if same_batch and 2 <= rank <= 4 and (bias is None or len(bias.shape) <= rank):
        # What comes before the tokens is heads, or a batch where its size may change.
        places = (1, 0) if rank == 3 and isinstance(q.shape[0], Sym) else (0, 1)
        whole = [_as_rank_4(low, x, places) for x in (q, k, v)]
        wide = None if bias is None else _as_rank_4(low, bias, places)
        out = _fused(low, whole[0], whole[1], whole[2], wide, factor)
        return low.reshape(out, low.shape)
    transposed = low.transpose(k, [*range(len(k.shape) - 2), len(k.shape) - 1, len(k.shape) - 2])
    scores = low.matmul(low.affine(q, scale=factor), transposed)
    scores = scores if bias is None else low.add(scores, bias)
    return low.matmul(safe_softmax(low, scores, -1), v)


@aten("_safe_softmax")
def safe_softmax(low: Lowering, x: Value, dim: int, *_dtype: object) -> Value:
    """Softmax in which a row of nothing but -inf becomes 0."""
    axis = axis_of(dim, len(x.shape))
    most = low.reduce_max(x, axes=(axis,), keepdims=1)
    blind = low.compare(most, low.constant(np.float32(-np.inf)), kind="eq")
    return low.where(blind, low.number(0.0), low.softmax(x, axis=axis))


def _fused(low: Lowering, q: Value, k: Value, v: Value, bias: Value | None, factor: float) -> Value:
    """One op, whose heads come after the tokens."""
    transposed = [low.transpose(x, (0, 2, 1, 3)) for x in (q, k, v)]
    out = low.emit("attention_full", *transposed, *([bias] if bias else []), scale=factor)
    return low.transpose(out, (0, 2, 1, 3))


def _bias(low: Lowering, mask: Value) -> Value:
    """What is added to the scores: -inf where a mask of truths does not hold.

    The layers of an encoder have one mask together, and one such bias.
    """
    if mask.dtype == DType.boolean:
        known = next((bias for one, bias in low.biases if one is mask), None)
        if known is not None:
            return known
        bias = low.where(mask, low.number(0.0), low.constant(np.float32(-np.inf), "unseen"))
        low.biases.append((mask, bias))
        return bias
    if mask.dtype != DType.f32:
        raise OperatorError("a mask of whole numbers")
    return mask


def _as_rank_4(low: Lowering, x: Value, places: tuple[int, int]) -> Value:
    """As [batch or 1, heads or 1, queries or 1, keys]; of three sizes the first is either."""
    if len(x.shape) == 4:
        return x
    wide = low.reshape(x, (*(1,) * (4 - len(x.shape)), *x.shape))
    return low.transpose(wide, (*places, 2, 3))
