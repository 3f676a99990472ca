"""Rows of an 8-bit KV cache, in plain numpy: what the native core is compared with."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

TAIL = 8  # bytes after a row's codes: its scale and its zero, both float32


def quantize_cache(x: Array) -> Array:
    """Vectors ``[..., D]`` as rows of uint8 ``[..., D + 8]``: codes, then scale and zero.

    A number is ``code * scale + zero``: zero is the smallest of its vector, and the largest has
    the code 255. A vector that holds (or spans) something not finite comes back as NaN.

    >>> row = quantize_cache(np.array([-1.0, 0.0, 254.0]))
    >>> row[:3].tolist(), row[3:].view(np.float32).tolist()
    ([0, 1, 255], [1.0, -1.0])
    """
    values = np.asarray(x, dtype=np.float32)
    with np.errstate(all="ignore"):
        zero = values.min(axis=-1, keepdims=True) + np.float32(0)  # a zero has no sign
        span = values.max(axis=-1, keepdims=True) - zero
        finite = np.isfinite(values).all(axis=-1, keepdims=True) & np.isfinite(span)
        inverse = np.float32(255) / span
        flat = ~finite | ~np.isfinite(inverse)
        codes = np.rint((values - zero) * np.where(flat, np.float32(0), inverse))
        codes = np.where(flat, np.float32(0), codes).astype(np.uint8)
        scale = np.where(flat, np.float32(0), span / np.float32(255))
        tail = np.where(finite, np.concatenate([scale, zero], axis=-1), np.float32(np.nan))
    return np.concatenate([codes, np.ascontiguousarray(tail).view(np.uint8)], axis=-1)


def dequantize_cache(rows: Array) -> Array:
    """The float32 vectors ``[..., D]`` that rows ``[..., D + 8]`` stand for.

    >>> dequantize_cache(quantize_cache(np.array([[-1.0, 0.25, 254.0]]))).tolist()
    [[-1.0, 0.0, 254.0]]
    """
    tail = np.ascontiguousarray(rows[..., -TAIL:]).view(np.float32)
    scale, zero = tail[..., :1], tail[..., 1:]
    values: Array = rows[..., :-TAIL].astype(np.float32) * scale + zero
    return values
