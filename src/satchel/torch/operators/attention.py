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
    turned = low.transpose(k, [*range(rank - 2), rank - 1, rank - 2])
    factor = 1 / math.sqrt(size) if scale is None else float(scale)
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
