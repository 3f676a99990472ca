"""Attention in integers: queries, keys, values and the weights of keys have 8 bits.

A number of x is ``(code - 128) * scale``, with a scale for the queries, keys and values of each
head. All steps are 32-bit floats, rounded one after the other:

    s = float(sum(q * k)) * (q_scale * k_scale * scale) + bias
    p = rint(exp(s - largest s) * 255)
    t = (float(sum(p * v)) * v_scale) * (1 / sum(p))

The key with the largest score has the weight 255, so that the step is that of each query's own
range. Where no key is seen at all, t is 0. A result is t itself, or its code: see requantize.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.graph.ops.attention_full import check_windows, rows_back, windows_of
from satchel.graph.ops.registry import Arrays, Attrs, Types, define, require
from satchel.graph.ops.requantize import check_step, codes_of
from satchel.graph.types import DType, TensorType, attr_float

Array = NDArray[Any]
ZERO = 128  # the code of zero
MAX_TOKENS = 2048  # whose sums fit: 255 * 128 * 2048 is below 2^31


@define("qattention_qkv", (2, 5), "scale", "out_scale", "out_zero")
class QAttentionQKV:
    """attention_qkv of codes: x u8 [B, T, 3, H, D], scales f32 [3, H], bias?, rows?, kinds?"""

    @staticmethod
    def types(types: Types, attrs: Attrs) -> list[TensorType]:
        x, scales = types[:2]
        assert x and scales
        op = "qattention_qkv"
        fits = len(x.shape) == 5 and x.dtype == DType.u8 and x.shape[2] == 3
        require(fits, op, "need u8 [B, T, 3, H, D]", types)
        check_windows(op, [x, *types[2:]])
        batch, tokens, _, heads, dim = x.shape
        require(scales == TensorType((3, heads)), op, "the scales must be f32 [3, H]", types)
        require(isinstance(dim, int) and dim % 4 == 0, op, "heads must be of whole fours", types)
        rows = types[3] if len(types) > 3 else None
        length = tokens if rows is None else rows.shape[1]
        require(isinstance(length, int) and length <= MAX_TOKENS, op, "too many tokens", types)
        attr_float(attrs, "scale")
        to_codes = "out_scale" in attrs
        if to_codes:
            check_step(op, attrs, "out_")
        return [TensorType((batch, tokens, heads, dim), DType.u8 if to_codes else DType.f32)]

    @staticmethod
    def run(arrays: Arrays, attrs: Attrs) -> list[Array]:
        x, scales, bias, rows, kinds = (*arrays, None, None, None)[:5]
        assert x is not None and scales is not None
        windows, bias = windows_of(x, bias, rows, kinds)
        q, k, v = (p.astype(np.float64) - ZERO for p in np.moveaxis(windows, 2, 0))
        factors = scales[0] * scales[1] * np.float32(attr_float(attrs, "scale"))
        scores = np.einsum("bthd,bshd->bhts", q, k).astype(np.float32) * factors[:, None, None]
        if bias is not None:
            scores = scores + np.tile(bias, (len(windows) // len(bias), 1, 1, 1))
        largest = scores.max(axis=-1, keepdims=True)
        centred = scores - np.where(np.isneginf(largest), np.float32(0), largest)
        powers = np.exp(centred.astype(np.float64)).astype(np.float32)
        codes = np.rint(powers * np.float32(255)).astype(np.float64)
        sums = np.einsum("bhts,bshd->bthd", codes, v).astype(np.float32)
        total = np.maximum(codes.sum(axis=-1), 1).astype(np.float32)  # [b, h, t]
        inverse = (np.float32(1) / total).transpose(0, 2, 1)[..., None]
        result = rows_back((sums * scales[2][:, None]) * inverse, x, rows)
        return [codes_of(result, attrs, "out_") if "out_scale" in attrs else result]
