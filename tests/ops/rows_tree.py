"""Rows of the op table: tokens that are a tree of continuations, and the cache they leave."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ops.rows_attention import WHERE, _attention, _cache, where
from satchel.graph.ir import DType, Sym
from support.arrays import generator, i32, normal
from support.op_case import Input, OpCase, State, case

S = Sym("S", 9)


def tree(tokens: int, seed: object = 0) -> np.ndarray:
    """Parents drawn at random: lines, forks and several roots."""
    draw = generator("tree", tokens, seed)
    parents = [int(draw.integers(max(-1, i - 4), i)) for i in range(1, tokens)]
    return np.array([-1, *parents], np.int32)


def path_of(parents: Any, node: int) -> list[int]:
    """A token's ancestors and itself, the oldest first."""
    path = [node]
    while int(parents[path[0]]) >= 0:
        path.insert(0, int(parents[path[0]]))
    return path


def tree_where(parents: np.ndarray, at: int) -> list[np.ndarray]:
    """The sequence and the position of a tree's tokens: as far behind ``at`` as their path is."""
    depths = [len(path_of(parents, i)) - 1 for i in range(len(parents))]
    return [np.zeros(len(parents), np.int32), np.array(depths, np.int32) + np.int32(at)]


def _attention_tree(window: int, softcap: float) -> Callable[..., Any]:
    """Each query alone, over a cache in which its path has been written as a line."""
    straight = _attention(0.25, window, softcap)

    def attend(t: Any, q: Any, k: Any, v: Any, sequence: Any, position: Any, parents: Any) -> Any:
        at, rows = int(position[0]), []
        for i in range(len(q)):
            path = [at + node for node in path_of(parents, i)]
            line = [*range(at), *path]
            last = t.tensor([len(line) - 1])
            rows.append(straight(t, q[i : i + 1], k[:, line], v[:, line], sequence[:1], last)[0])
        return t.stack(rows)

    return attend


def _attention_rows() -> list[OpCase]:
    rows = []
    # (queries, heads, kv heads, head size, position, capacity, window, softcap)
    variations = (
        (1, 4, 2, 8, 0, 16, 0, 0.0),
        (7, 6, 2, 7, 0, 10, 0, 0.0),
        (9, 4, 1, 33, 60, 80, 0, 0.0),
        (31, 9, 3, 64, 130, 200, 0, 0.0),
        (31, 4, 4, 16, 169, 200, 0, 0.0),
        (20, 4, 2, 16, 50, 128, 7, 0.0),
        (20, 4, 2, 16, 64, 128, 64, 0.0),
        (12, 8, 1, 80, 126, 140, 3, 30.0),
    )
    for queries, heads, kv_heads, dim, at, capacity, window, softcap in variations:
        for dtype in ("float32", "float16", "uint8"):
            name = f"tree_{queries}x{heads}x{dim}_kv{kv_heads}_at{at}_of{capacity}"
            name += f"_window{window}_softcap{softcap}_{dtype}"
            k = _cache((kv_heads, capacity, dim), at + queries, dtype, "k")
            v = _cache((kv_heads, capacity, dim), at + queries, dtype, "v")
            inputs = [
                normal(queries, heads, dim, scale=2),
                k,
                v,
                *tree_where(tree(queries), at),
                tree(queries),
            ]
            attrs = {"scale": 0.25, "window": window, "softcap": softcap}
            oracle = _attention_tree(window, softcap)
            rows.append(case("attention", name, inputs, oracle, **attrs))
    return rows


def _cache_move_rows() -> list[OpCase]:
    def oracle(t: Any, cache: Any, x: Any, _s: Any, at: Any, rows: Any, _o: Any, start: Any) -> Any:
        values = x.transpose(0, 1).to(cache.dtype)
        cache[:, int(at[0]) : int(at[0]) + len(x)] = values
        kept = cache[:, [int(start) + int(row) for row in rows]].clone()
        cache[:, int(start) : int(start) + len(rows)] = kept
        return cache

    def build(b: Any, values: Any) -> Any:
        cache, x, sequence, at, rows, *start = values
        return b.cache_move(b.cache_write(cache, x, sequence, at), rows, *start)

    result = []
    count = Sym("R", 9)
    for dtype in (DType.f32, DType.f16):
        i = DType.i32
        slots = [State((2, 12, 5), dtype), Input((S, 2, 5)), *WHERE]
        slots += [Input((count,), i), Input((1,), i), Input((1,), i)]
        # Nothing moves; gaps close; a single row; the last rows of the cache.
        moves = ((9, 0, (0, 1, 2), 0), (4, 3, (0, 2, 3), 3), (2, 8, (5,), 2), (9, 3, (2, 7, 8), 3))
        calls = [
            [normal(n, 2, 5, seed=at), *where(n, at), i32(*rows), i32(0), i32(start)]
            for n, at, rows, start in moves
        ]
        result.append(
            case("cache_move", dtype.name, slots, oracle, tolerance=0, build=build, calls=calls)
        )
    return result


ROWS = [*_attention_rows(), *_cache_move_rows()]
