"""Rotary positions, the KV cache, and causal attention over it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.errors import ExecutionError
from satchel.graph.ops.registry import Arrays, Attrs, Types, define, require
from satchel.graph.types import Dim, DType, TensorType, attr_float, attr_int
from satchel.quantize.cache import TAIL, dequantize_cache, quantize_cache

Array = NDArray[Any]

_START = TensorType((1,), DType.i32)
_CACHES = (DType.f32, DType.f16, DType.u8)


def checked_start(start: Array, tokens: int, capacity: int) -> int:
    """The position of the first token; ExecutionError unless there is room for all of them."""
    first = int(start[0])
    if first < 0 or first + tokens > capacity:
        last = first + tokens - 1
        raise ExecutionError(f"the tokens {first} to {last} do not fit in a context of {capacity}")
    return first


def cache_row(dtype: DType, dim: Dim) -> Dim:
    """Elements of a cache's row for vectors of ``dim``: scale and zero follow 8-bit codes."""
    return dim + TAIL if dtype == DType.u8 and isinstance(dim, int) else dim


def tree_depths(parents: Array) -> Array:
    """How many ancestors each token of a tree has: it names an earlier one, or -1 for none."""
    depths = np.zeros(len(parents), np.int32)
    for i, parent in enumerate(parents.tolist()):
        if not -1 <= parent < i:
            raise ExecutionError(f"the token {i} cannot have the parent {parent}")
        depths[i] = 0 if parent < 0 else depths[parent] + 1
    return depths


def _check_parents(op: str, types: Types, at: int, tokens: Dim) -> None:
    parents = types[at] if len(types) > at else None
    if parents is not None:
        fits = parents == TensorType((tokens,), DType.i32)
        require(fits, op, "parents must be i32[S]", types)


def _optional(arrays: Arrays, at: int) -> Array | None:
    return arrays[at] if len(arrays) > at else None


@define("positions", (2, 3))
class Positions:
    """start, start + 1, … for as many entries as ``like`` has.

    With ``parents`` the entries are a tree: each stands one behind its parent, roots at start.
    """

    @staticmethod
    def types(types: Types, _attrs: Attrs) -> list[TensorType]:
        start, like = types[:2]
        assert start and like
        require(start == _START, "positions", "start must be i32[1]", types)
        require(len(like.shape) >= 1, "positions", "like has no dimension", types)
        _check_parents("positions", types, 2, like.shape[0])
        return [TensorType(like.shape[:1], DType.i32)]

    @staticmethod
    def run(arrays: Arrays, _attrs: Attrs) -> list[Array]:
        parents = _optional(arrays, 2)
        if parents is not None:
            return [arrays[0][0] + tree_depths(parents)]
        return [arrays[0][0] + np.arange(arrays[1].shape[0], dtype=np.int32)]


@define("rope_table", 2, "scale")
class RopeTable:
    """The cosines and then the sines of position * frequency, times ``scale``."""

    @staticmethod
    def types(types: Types, attrs: Attrs) -> list[TensorType]:
        positions, frequencies = types
        assert positions and frequencies
        fits = len(positions.shape) == 1 and positions.dtype == DType.i32
        require(fits, "rope_table", "the positions must be i32[n]", types)
        fits = len(frequencies.shape) == 1 and frequencies.dtype == DType.f32
        require(fits, "rope_table", "the frequencies must be f32[n]", types)
        attr_float(attrs, "scale", 1.0)
        half = frequencies.shape[0]
        require(isinstance(half, int), "rope_table", "their number must be known", types)
        assert isinstance(half, int)
        return [TensorType((positions.shape[0], 2 * half), DType.f32)]

    @staticmethod
    def run(arrays: Arrays, attrs: Attrs) -> list[Array]:
        # The angle is rounded to f32, as every implementation of rotary embeddings does.
        angles = arrays[0].astype(np.float32)[:, None] * arrays[1][None, :]
        wide = angles.astype(np.float64)
        table = np.concatenate([np.cos(wide), np.sin(wide)], axis=1)
        return [(table * attr_float(attrs, "scale", 1.0)).astype(np.float32)]


@define("rope", 2)
class Rope:
    """Rotate the first values of each head; value i pairs with i + half (half-split form)."""

    @staticmethod
    def types(types: Types, _attrs: Attrs) -> list[TensorType]:
        x, table = types
        assert x and table
        require(len(x.shape) == 3 and x.dtype == DType.f32, "rope", "x must be [S, H, D]", types)
        fits = len(table.shape) == 2 and table.dtype == DType.f32
        require(fits, "rope", "the table must be f32 [S, rotary]", types)
        require(table.shape[0] == x.shape[0], "rope", "x and table differ in length", types)
        rotary, dim = table.shape[1], x.shape[2]
        known = isinstance(rotary, int) and isinstance(dim, int)
        require(known, "rope", "the head size must be known", types)
        assert isinstance(rotary, int) and isinstance(dim, int)
        require(rotary % 2 == 0 and rotary <= dim, "rope", "the table is too wide", types)
        return [x]

    @staticmethod
    def run(arrays: Arrays, _attrs: Attrs) -> list[Array]:
        x, table = arrays
        half = table.shape[1] // 2
        cos, sin = table[:, None, :half], table[:, None, half:]
        first, second = x[..., :half], x[..., half : 2 * half]
        out = x.copy()
        out[..., :half] = first * cos - second * sin
        out[..., half : 2 * half] = second * cos + first * sin
        return [out]


@define("cache_write", 3)
class CacheWrite:
    """Write x at the positions start, start + 1, … of a cache, in the cache's own dtype.

    The cache is a state and is written in place. One of u8 has rows of D codes and 8 bytes of
    scale and zero, so that it is one state with all that belongs to it.
    """

    @staticmethod
    def types(types: Types, _attrs: Attrs) -> list[TensorType]:
        cache, x, start = types
        assert cache and x and start
        fits = len(cache.shape) == 3 and len(x.shape) == 3 and cache.shape[0] == x.shape[1]
        fits = fits and cache.shape[2] == cache_row(cache.dtype, x.shape[2])
        require(fits, "cache_write", "need cache [H, C, D] and x [S, H, D]", types)
        require(cache.dtype in _CACHES, "cache_write", "bad cache dtype", types)
        require(x.dtype == DType.f32 and start == _START, "cache_write", "bad dtype", types)
        return [cache]

    @staticmethod
    def run(arrays: Arrays, _attrs: Attrs) -> list[Array]:
        cache, x, start = arrays
        first = checked_start(start, x.shape[0], cache.shape[1])
        rows = x.transpose(1, 0, 2)
        with np.errstate(over="ignore"):
            rows = quantize_cache(rows) if cache.dtype == np.uint8 else rows.astype(cache.dtype)
        cache[:, first : first + x.shape[0]] = rows
        return [cache]


@define("cache_move", 3)
class CacheMove:
    """Move rows of a cache together: row start + rows[i] becomes row start + i.

    The cache is a state and is written in place. The rows rise, so that none is overwritten
    before it has been moved.
    """

    @staticmethod
    def types(types: Types, _attrs: Attrs) -> list[TensorType]:
        cache, rows, start = types
        assert cache and rows and start
        fits = len(cache.shape) == 3 and cache.dtype in _CACHES
        require(fits, "cache_move", "need a cache [H, C, D]", types)
        fits = len(rows.shape) == 1 and rows.dtype == DType.i32
        require(fits, "cache_move", "the rows must be i32[n]", types)
        require(start == _START, "cache_move", "start must be i32[1]", types)
        return [cache]

    @staticmethod
    def run(arrays: Arrays, _attrs: Attrs) -> list[Array]:
        cache, rows, start = arrays
        first = checked_start(start, len(rows), cache.shape[1])
        wrong = (rows < 0) | (rows >= cache.shape[1] - first)
        wrong[1:] |= rows[1:] <= rows[:-1]
        if wrong.any():
            raise ExecutionError(
                f"the row {rows[wrong][0]} cannot be moved: rows must rise and lie in the context"
            )
        cache[:, first : first + len(rows)] = cache[:, first + rows]
        return [cache]


@define("attention", (4, 5), "scale", "window", "softcap")
class Attention:
    """Causal grouped-query attention of q [S, H, D] over caches [KV, C, D].

    Query i stands at start + i and sees the positions up to its own; with a ``window`` only the
    last ``window`` of them. ``softcap`` c turns a score s into c * tanh(s / c). With ``parents``
    the queries are a tree: one sees what lies before start, its ancestors, and itself.
    """

    @staticmethod
    def types(types: Types, attrs: Attrs) -> list[TensorType]:
        q, k, v, start = types[:4]
        assert q and k and v and start
        require(len(q.shape) == 3 and q.dtype == DType.f32, "attention", "bad q", types)
        require(len(k.shape) == 3 and k == v, "attention", "k and v must match", types)
        require(k.dtype in _CACHES, "attention", "bad cache dtype", types)
        heads, kv_heads = q.shape[1], k.shape[0]
        known = isinstance(heads, int) and isinstance(kv_heads, int)
        require(known, "attention", "the number of heads must be known", types)
        assert isinstance(heads, int) and isinstance(kv_heads, int)
        require(heads % kv_heads == 0, "attention", "kv heads must divide heads", types)
        fits = cache_row(k.dtype, q.shape[2]) == k.shape[2]
        require(fits, "attention", "the head sizes differ", types)
        require(start == _START, "attention", "start must be i32[1]", types)
        _check_parents("attention", types, 4, q.shape[0])
        attr_float(attrs, "scale")
        require(attr_int(attrs, "window", 0) >= 0, "attention", "the window is negative")
        require(attr_float(attrs, "softcap", 0.0) >= 0, "attention", "the softcap is negative")
        return [q]

    @staticmethod
    def run(arrays: Arrays, attrs: Attrs) -> list[Array]:
        q, k, v, start = arrays[:4]
        parents = _optional(arrays, 4)
        queries, heads, _ = q.shape
        first = checked_start(start, queries, k.shape[1])
        last = first + queries
        window, softcap = attr_int(attrs, "window", 0), attr_float(attrs, "softcap", 0.0)
        repeat = heads // k.shape[0]
        keys, values = (np.repeat(_numbers(c[:, :last]), repeat, axis=0) for c in (k, v))
        scores = np.einsum("shd,htd->hst", q, keys) * attr_float(attrs, "scale")
        if softcap:
            scores = softcap * np.tanh(scores / softcap)
        line = np.arange(queries) if parents is None else tree_depths(parents)
        at = first + line[:, None]
        stands = np.concatenate([np.arange(first), first + line])[None, :]  # where each key does
        seen = stands <= at if parents is None else _seen_in_tree(first, parents)
        if window:
            seen &= stands > at - window
        scores = np.where(seen[None], scores, -np.inf)
        powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights = powers / powers.sum(axis=-1, keepdims=True)
        return [np.einsum("hst,htd->shd", weights, values).astype(np.float32)]


def _seen_in_tree(first: int, parents: Array) -> Array:
    """Whether a query sees a row: all before ``first``, its ancestors, and itself."""
    seen = np.zeros((len(parents), first + len(parents)), bool)
    seen[:, :first] = True
    for i, parent in enumerate(parents.tolist()):
        if parent >= 0:
            seen[i] = seen[parent]
        seen[i, first + i] = True
    return seen


def _numbers(cache: Array) -> Array:
    """What a cache holds, in float64."""
    values = dequantize_cache(cache) if cache.dtype == np.uint8 else cache
    return values.astype(np.float64)
