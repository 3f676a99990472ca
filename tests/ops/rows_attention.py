"""Rows of the op table: rotary positions, the cache, and attention over it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from satchel.graph.builder import GraphBuilder
from satchel.graph.ir import DType, Sym, Value
from support.arrays import i32, integers, normal, uniform
from support.op_case import Constant, Input, OpCase, State, case

S = Sym("S", 9)
WHERE = (Input((S,), DType.i32), Input((S,), DType.i32))


def where(count: int, at: int, sequence: int = 0) -> list[np.ndarray]:
    """The sequence and the position of tokens that follow each other."""
    return [np.full(count, sequence, np.int32), (np.arange(count) + at).astype(np.int32)]


def _rope_table_rows() -> list[OpCase]:
    def oracle(scale: float) -> Callable[..., Any]:
        def table(t: Any, positions: Any, frequencies: Any) -> Any:
            angles = t.outer(positions.float(), frequencies.float()).double()
            return t.cat([angles.cos(), angles.sin()], 1) * scale

        return table

    frequencies = (10000.0 ** (-np.arange(0, 14, 2) / 14)).astype(np.float32)
    slots = [Input((S,), DType.i32), Constant(frequencies)]
    calls = [[i32(0, 1, 2)], [i32(*range(4000, 4009))], [i32(131071)]]
    return [
        case("rope_table", "symbolic", slots, oracle(1.0), calls=calls),
        case("rope_table", "scaled", slots, oracle(0.7), calls=calls, scale=0.7),
        case("rope_table", "one", [i32(3), normal(1)], oracle(1.0)),
    ]


def _rope(t: Any, x: Any, table: Any) -> Any:
    """As complex numbers: value i of a head is the real part, value i + half the imaginary."""
    half = table.shape[1] // 2
    turn = t.complex(table[:, :half], table[:, half:])[:, None]
    rotated = t.complex(x[..., :half], x[..., half : 2 * half]) * turn
    return t.cat([rotated.real, rotated.imag, x[..., 2 * half :]], -1)


def _rope_rows() -> list[OpCase]:
    rows = []
    # (tokens, heads, head size, rotated); the rest of a head is left alone
    for tokens, heads, dim, rotary in (
        (1, 1, 2, 2),
        (3, 2, 8, 8),
        (5, 3, 14, 14),
        (2, 2, 64, 64),
        (3, 2, 96, 24),
        (4, 1, 9, 6),
    ):
        name = f"{tokens}x{heads}x{dim}_rotary{rotary}"
        inputs = [normal(tokens, heads, dim), normal(tokens, rotary)]
        rows.append(case("rope", name, inputs, _rope))
    calls = [[normal(n, 2, 16), normal(n, 16)] for n in (9, 1, 4)]
    rows.append(case("rope", "symbolic", [Input((S, 2, 16)), Input((S, 16))], _rope, calls=calls))
    return rows


def _write(t: Any, cache: Any, x: Any, sequence: Any, position: Any) -> Any:
    rows = x.transpose(0, 1)
    rows = _to_bytes(t, rows.float()) if cache.dtype == t.uint8 else rows.to(cache.dtype)
    for i, at in enumerate(position.tolist()):
        mine = cache if cache.dim() == 3 else cache[int(sequence[i])]
        mine[:, at] = rows[:, i]
    return cache


def _to_bytes(t: Any, x: Any) -> Any:
    """Codes from each vector's smallest to its largest number, then scale and zero."""
    zero = x.amin(-1, keepdim=True)
    span, most = x.amax(-1, keepdim=True) - zero, t.full_like(zero, 255)
    constant = span == 0
    factor = (most / span).masked_fill(constant, 0)
    codes = ((x - zero) * factor).round().to(t.uint8)
    tail = t.cat([(span / most).masked_fill(constant, 0), zero], -1)
    return t.cat([codes, tail.contiguous().view(t.uint8)], -1)


def _from_bytes(t: Any, cache: Any) -> Any:
    tail = cache[..., -8:].clone(memory_format=t.contiguous_format).view(t.float32).double()
    return cache[..., :-8].double() * tail[..., :1] + tail[..., 1:]


def _cache_write_rows() -> list[OpCase]:
    rows = []
    for dtype in (DType.f32, DType.f16, DType.u8):
        tail = 8 if dtype == DType.u8 else 0
        for heads, dim in ((1, 1), (2, 7), (3, 16), (1, 37)):
            cache = State((heads, 12, dim + tail), dtype)
            slots = [cache, Input((S, heads, dim)), *WHERE]
            # A block, the next, one token, back over what was written, and up to the very end.
            calls = [
                [normal(n, heads, dim, seed=at), *where(n, at)]
                for n, at in ((5, 0), (3, 5), (1, 8), (2, 4), (9, 3), (1, 11))
            ]
            name = f"{dtype.name}_{heads}x{dim}"
            rows.append(case("cache_write", name, slots, _write, tolerance=0, calls=calls))
    return rows


def _attention(scale: float, window: int = 0, softcap: float = 0.0) -> Callable[..., Any]:
    def attend(t: Any, q: Any, k: Any, v: Any, sequence: Any, position: Any) -> Any:
        if k.dim() == 4:  # each query over the caches of its own sequence
            rows = [
                attend(t, q[i : i + 1], k[s], v[s], sequence[i : i + 1], position[i : i + 1])
                for i, s in enumerate(sequence.tolist())
            ]
            return t.cat(rows)
        at = position[:, None]
        key = t.arange(int(position.max()) + 1)[None]
        seen = (key <= at) & ((key > at - window) if window else True)
        k, v = (c[:, : key.shape[1]] for c in (k, v))
        k, v = (_from_bytes(t, c) if c.dtype == t.uint8 else c.double() for c in (k, v))
        q = q.transpose(0, 1)
        if not softcap:
            attention = t.nn.functional.scaled_dot_product_attention
            out = attention(q[None], k[None], v[None], seen, scale=scale, enable_gqa=True)[0]
        else:
            repeat = q.shape[0] // k.shape[0]
            k, v = (c.repeat_interleave(repeat, 0) for c in (k, v))
            scores = t.tanh(q @ k.mT * scale / softcap) * softcap
            out = scores.masked_fill(~seen, -t.inf).softmax(-1) @ v
        return out.transpose(0, 1)

    return attend


def _cache(shape: tuple[int, int, int], used: int, dtype: str, seed: str) -> np.ndarray:
    """What lies beyond the used part is NaN, which must not come through."""
    cache = normal(*shape, seed=seed)
    cache[:, used:] = np.nan
    return _bytes(cache, seed) if dtype == "uint8" else cache.astype(dtype)


def _bytes(cache: np.ndarray, seed: str) -> np.ndarray:
    """Any codes with scales and zeros that bring them to about -2 … 2."""
    codes = integers(*cache.shape, below=256, seed=seed)
    spread = uniform(*cache.shape[:2], 1, low=0.5, high=2.0, seed=seed)
    tail = np.concatenate([spread / 64, -spread * 2 + cache[..., :1] * 0], -1).astype(np.float32)
    return np.concatenate([codes.astype(np.uint8), tail.view(np.uint8)], -1)


def _attention_rows() -> list[OpCase]:
    rows = []
    # (queries, heads, kv heads, head size, position, capacity, window, softcap)
    variations = (
        (1, 1, 1, 1, 0, 1, 0, 0.0),
        (1, 4, 2, 8, 0, 16, 0, 0.0),
        (1, 6, 2, 7, 9, 10, 0, 0.0),
        (5, 3, 3, 16, 0, 8, 0, 0.0),
        (5, 4, 1, 33, 3, 8, 0, 0.0),
        (17, 4, 2, 64, 30, 64, 0, 0.0),
        (33, 2, 1, 80, 267, 300, 0, 0.0),
        (1, 9, 3, 64, 511, 600, 0, 0.0),
        (6, 4, 2, 16, 10, 20, 1, 0.0),
        (20, 4, 2, 16, 100, 128, 7, 0.0),
        (1, 4, 2, 16, 150, 200, 16, 0.0),
        (6, 4, 2, 16, 2, 20, 100, 0.0),
        (7, 4, 2, 16, 3, 20, 0, 2.5),
        (7, 4, 2, 16, 30, 64, 5, 30.0),
        (1, 8, 1, 256, 40, 64, 0, 50.0),
        # Blocks of a prompt.
        (70, 4, 2, 64, 30, 128, 0, 0.0),
        (100, 2, 1, 80, 67, 170, 50, 0.0),
        (64, 4, 2, 128, 0, 64, 0, 0.0),
        (65, 2, 2, 8, 200, 300, 5, 5.0),
        (90, 2, 1, 256, 10, 101, 0, 30.0),
        (130, 2, 1, 40, 300, 430, 129, 0.0),
    )
    for queries, heads, kv_heads, dim, at, capacity, window, softcap in variations:
        for dtype in ("float32", "float16", "uint8"):
            name = f"{queries}x{heads}x{dim}_kv{kv_heads}_at{at}_of{capacity}"
            name += f"_window{window}_softcap{softcap}_{dtype}"
            k = _cache((kv_heads, capacity, dim), at + queries, dtype, "k")
            v = _cache((kv_heads, capacity, dim), at + queries, dtype, "v")
            inputs = [normal(queries, heads, dim, scale=2), k, v, *where(queries, at)]
            oracle = _attention(0.25, window, softcap)
            attrs = {"scale": 0.25, "window": window, "softcap": softcap}
            rows.append(case("attention", name, inputs, oracle, **attrs))
    # Scores so large that only a softmax that subtracts their maximum survives.
    steep = [normal(3, 2, 8, scale=100), normal(1, 8, 8), normal(1, 8, 8, seed=1), *where(3, 2)]
    rows.append(case("attention", "steep", steep, _attention(10.0), scale=10.0))
    return rows


def _session_rows() -> list[OpCase]:
    """Writing the caches and attending to them, call after call as a session does."""
    rows = []
    for dtype in (DType.f32, DType.f16, DType.u8):
        for window, softcap in ((0, 0.0), (4, 0.0), (0, 20.0)):

            def build(
                b: GraphBuilder, values: list[Value | None], w: int = window, c: float = softcap
            ) -> Value:
                cache_k, cache_v, q, k, v, *at = values
                keys, written = b.cache_write(cache_k, k, *at), b.cache_write(cache_v, v, *at)
                return b.node("attention", q, keys, written, *at, scale=0.3, window=w, softcap=c)

            def oracle(
                t: Any,
                ck: Any,
                cv: Any,
                q: Any,
                k: Any,
                v: Any,
                sequence: Any,
                position: Any,
                attend: Any = _attention(0.3, window, softcap),  # noqa: B008
            ) -> Any:
                at = (sequence, position)
                return attend(t, q, _write(t, ck, k, *at), _write(t, cv, v, *at), *at)

            cache = State((2, 14, 16 if dtype == DType.u8 else 8), dtype)
            parts = [Input((S, 4, 8)), Input((S, 2, 8)), Input((S, 2, 8)), *WHERE]
            calls = [
                [
                    normal(n, 4, 8, seed=at),
                    normal(n, 2, 8, seed=at),
                    normal(n, 2, 8, seed=f"v{at}"),
                    *where(n, at),
                ]
                for n, at in ((5, 0), (4, 5), (1, 9), (1, 10), (3, 6), (5, 9))
            ]
            rows.append(
                case(
                    "attention",
                    f"session_{dtype.name}_window{window}_softcap{softcap}",
                    [cache, cache, *parts],
                    oracle,
                    build=build,
                    calls=calls,
                )
            )
    return rows


ROWS = [
    *_rope_table_rows(),
    *_rope_rows(),
    *_cache_write_rows(),
    *_attention_rows(),
    *_session_rows(),
]
