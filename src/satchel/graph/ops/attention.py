"""Rotary positions, the KV cache, and causal attention over it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.errors import ExecutionError
from satchel.graph.ops.registry import Arrays, Attrs, Types, define, require
from satchel.graph.types import Dim, DType, TensorType, attr_float, attr_int
from satchel.quantize.cache import TAIL, dequantize_cache, quantize_cache

Array = NDArray[Any]

_CACHES = (DType.f32, DType.f16, DType.u8)


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


@dataclass(frozen=True)
class Run:
    """Tokens of a step that follow each other in one sequence.

    The i-th of them stands at ``stands[i]`` and has the row ``rows[i]`` of the cache: its position,
    or in a tree, where several may have one position, its place behind the text.
    """

    tokens: slice
    sequence: int
    stands: Array
    rows: Array
    parents: Array | None = None  # of a tree: numbers within the run


def step_runs(sequence: Array, position: Array, parents: Array | None = None) -> Iterator[Run]:
    """The runs of a step, whose tokens each have a sequence and a position."""
    first = 0
    while first < len(sequence):
        end = first + 1
        while end < len(sequence) and sequence[end] == sequence[first]:
            end += 1
        tokens = slice(first, end)
        stands, own = position[tokens], None
        rows = stands
        if parents is not None:
            own = np.where(parents[tokens] < 0, parents[tokens], parents[tokens] - first)
            rows = stands[0] + np.arange(end - first)
            wrong = stands != stands[0] + tree_depths(own)
            if wrong.any():
                at = first + int(np.argmax(wrong))
                raise ExecutionError(f"the token {at} does not stand behind its parent")
        yield Run(tokens, int(sequence[first]), stands, rows, own)
        first = end


def rows_of(cache: Array, run: Run) -> Array:
    """The cache of a run's sequence, [H, C, D], when its rows are in it.

    A cache is kept for each sequence, [sequences, H, C, D], or is an array of its own.
    """
    count = len(cache) if cache.ndim == 4 else 1
    if not 0 <= run.sequence < count:
        raise ExecutionError(f"there is no sequence {run.sequence}")
    mine: Array = cache[run.sequence] if cache.ndim == 4 else cache
    low, high = int(run.rows.min()), int(run.rows.max())
    if low < 0 or high >= mine.shape[1]:
        raise ExecutionError(
            f"the tokens {low} to {high} do not fit in a context of {mine.shape[1]}"
        )
    return mine


def _check_step(op: str, types: Types, at: int, tokens: Dim) -> None:
    """Sequence, position and, where the tokens are a tree, parents: one of each for a token."""
    wanted = TensorType((tokens,), DType.i32)
    for name, type in zip(("sequence", "position", "parents"), types[at:], strict=False):
        require(type in (wanted, None), op, f"{name} must be i32[S]", types)


def _optional(arrays: Arrays, at: int) -> Array | None:
    return arrays[at] if len(arrays) > at else None


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


@define("cache_write", (4, 5))
class CacheWrite:
    """Write x [S, H, D] into the rows of a cache that its tokens have, in the cache's own dtype.

    ``cache_write(cache, x, sequence, position, parents?)``: see :func:`step_runs`. The cache is a
    state and is written in place. One of u8 has rows of D codes and 8 bytes of scale and zero, so
    that it is one state with all that belongs to it.
    """

    @staticmethod
    def types(types: Types, _attrs: Attrs) -> list[TensorType]:
        cache, x = types[:2]
        assert cache and x
        fits = len(cache.shape) == 3 and len(x.shape) == 3 and cache.shape[0] == x.shape[1]
        fits = fits and cache.shape[2] == cache_row(cache.dtype, x.shape[2])
        require(fits, "cache_write", "need cache [H, C, D] and x [S, H, D]", types)
        require(cache.dtype in _CACHES, "cache_write", "bad cache dtype", types)
        require(x.dtype == DType.f32, "cache_write", "bad dtype", types)
        _check_step("cache_write", types, 2, x.shape[0])
        return [cache]

    @staticmethod
    def run(arrays: Arrays, _attrs: Attrs) -> list[Array]:
        cache, x, sequence, position = arrays[:4]
        values = x.transpose(1, 0, 2)
        with np.errstate(over="ignore"):
            eight = cache.dtype == np.uint8
            values = quantize_cache(values) if eight else values.astype(cache.dtype)
        for run in step_runs(sequence, position, _optional(arrays, 4)):
            rows_of(cache, run)[:, run.rows] = values[:, run.tokens]
        return [cache]


@define("cache_move", 4)
class CacheMove:
    """Move rows of a cache together: row start + rows[i] becomes row start + i.

    ``cache_move(cache, rows, sequence, start)``. The cache is a state and is written in place. The
    rows rise, so that none is overwritten before it has been moved.
    """

    @staticmethod
    def types(types: Types, _attrs: Attrs) -> list[TensorType]:
        cache, rows = types[:2]
        assert cache and rows
        fits = len(cache.shape) == 3 and cache.dtype in _CACHES
        require(fits, "cache_move", "need a cache [H, C, D]", types)
        fits = len(rows.shape) == 1 and rows.dtype == DType.i32
        require(fits, "cache_move", "the rows must be i32[n]", types)
        _check_step("cache_move", types, 2, 1)
        return [cache]

    @staticmethod
    def run(arrays: Arrays, _attrs: Attrs) -> list[Array]:
        cache, rows, sequence, start = arrays
        kept = np.arange(len(rows), dtype=np.int32) + start
        mine = rows_of(cache, Run(slice(0, len(rows)), int(sequence[0]), kept, kept))
        wrong = (rows < 0) | (rows >= mine.shape[1] - start[0])
        wrong[1:] |= rows[1:] <= rows[:-1]
        if wrong.any():
            raise ExecutionError(
                f"the row {rows[wrong][0]} cannot be moved: rows must rise and lie in the context"
            )
        mine[:, kept] = mine[:, start + rows]
        return [cache]


@define("attention", (5, 6), "scale", "window", "softcap")
class Attention:
    """Causal grouped-query attention of q [S, H, D] over caches [KV, C, D].

    ``attention(q, k, v, sequence, position, parents?)``: a query sees the rows of its sequence up
    to its own position; with a ``window`` only the last ``window`` of them. ``softcap`` c turns a
    score s into c * tanh(s / c). With ``parents`` the queries are trees: one sees what lies before
    its tree, its ancestors, and itself.
    """

    @staticmethod
    def types(types: Types, attrs: Attrs) -> list[TensorType]:
        q, k, v = types[:3]
        assert q and k and v
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
        _check_step("attention", types, 3, q.shape[0])
        attr_float(attrs, "scale")
        require(attr_int(attrs, "window", 0) >= 0, "attention", "the window is negative")
        require(attr_float(attrs, "softcap", 0.0) >= 0, "attention", "the softcap is negative")
        return [q]

    @staticmethod
    def run(arrays: Arrays, attrs: Attrs) -> list[Array]:
        q, k, v, sequence, position = arrays[:5]
        out = np.empty(q.shape, np.float32)
        for run in step_runs(sequence, position, _optional(arrays, 5)):
            keys, values = rows_of(k, run), rows_of(v, run)
            out[run.tokens] = _attend(q[run.tokens], keys, values, run, attrs)
        return [out]


def _attend(q: Array, k: Array, v: Array, run: Run, attrs: Attrs) -> Array:
    """The queries of one run over the caches of its sequence."""
    window, softcap = attr_int(attrs, "window", 0), attr_float(attrs, "softcap", 0.0)
    repeat, last = q.shape[1] // k.shape[0], int(run.rows.max()) + 1
    keys, values = (np.repeat(_numbers(c[:, :last]), repeat, axis=0) for c in (k, v))
    scores = np.einsum("shd,htd->hst", q, keys) * attr_float(attrs, "scale")
    if softcap:
        scores = softcap * np.tanh(scores / softcap)
    at, stands = run.stands[:, None], np.arange(last)[None, :]  # where each key stands
    seen = stands <= at
    if run.parents is not None:
        first = int(run.rows[0])
        stands = np.concatenate([np.arange(first), run.stands])[None, :]
        seen = _seen_in_tree(first, run.parents)
    if window:
        seen &= stands > at - window
    scores = np.where(seen[None], scores, -np.inf)
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = powers / powers.sum(axis=-1, keepdims=True)
    result: Array = np.einsum("hst,htd->shd", weights, values).astype(np.float32)
    return result


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
