"""Scaled dot-product attention."""

from __future__ import annotations

import math

import numpy as np

from satchel.graph.ir import DType, Value
from satchel.torch.lowering import Lowering
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
    rank = len(k.shape)
    factor = 1 / math.sqrt(size) if scale is None else float(scale)
    if rank == len(q.shape) == 4 and (mask is None or len(mask.shape) in (2, 4)):
        return _fused(low, q, k, v, _bias(low, q, k, mask, is_causal), factor)
    turned = low.transpose(k, [*range(rank - 2), rank - 1, rank - 2])
    scores = low.matmul(low.affine(q, scale=factor), turned)
    if is_causal:
        rows, columns = (low.known(d, "causal attention") for d in scores.shape[-2:])
        mask = low.constant(np.tri(rows, columns, dtype=bool), "causal")
    if mask is not None and mask.dtype == DType.boolean:
        # Lower than any score, and not infinite: a row that sees nothing stays a number.
        scores = low.where(mask, scores, low.number(-1e30))
    elif mask is not None:
        if mask.dtype != DType.f32:
            raise OperatorError("a mask of whole numbers")
        scores = low.add(scores, mask)
    return low.matmul(low.softmax(scores, axis=len(scores.shape) - 1), v)


def _fused(low: Lowering, q: Value, k: Value, v: Value, bias: Value | None, factor: float) -> Value:
    """One op, whose heads come after the tokens."""
    turned = [low.transpose(x, (0, 2, 1, 3)) for x in (q, k, v)]
    out = low.emit("attention_full", *turned, *([bias] if bias else []), scale=factor)
    return low.transpose(out, (0, 2, 1, 3))


def _bias(low: Lowering, q: Value, k: Value, mask: Value | None, is_causal: bool) -> Value | None:
    """What is added to the scores, as [batch or 1, heads or 1, queries or 1, keys]."""
    if is_causal:
        rows, columns = (low.known(x.shape[-2], "causal attention") for x in (q, k))
        mask = low.constant(np.tri(rows, columns, dtype=bool), "causal")
    if mask is None:
        return None
    if mask.dtype == DType.boolean:
        # Lower than any score, and not infinite: a row that sees nothing stays a number.
        mask = low.where(mask, low.number(0.0), low.number(-1e30))
    if mask.dtype != DType.f32:
        raise OperatorError("a mask of whole numbers")
    return low.reshape(mask, (1, 1, *mask.shape)) if len(mask.shape) == 2 else mask
