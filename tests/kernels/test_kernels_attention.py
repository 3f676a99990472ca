"""Attention against a plain softmax in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from satchel._native import kernels

Array = NDArray[Any]


def expected_attention(
    q: Array, k: Array, v: Array, position: int, *, window: int, softcap: float, scale: float
) -> Array:
    queries, heads, _ = q.shape
    k = np.repeat(k.astype(float), heads // k.shape[0], axis=0)
    v = np.repeat(v.astype(float), heads // v.shape[0], axis=0)
    scores = np.einsum("qhd,hkd->hqk", q.astype(float), k) * scale
    if softcap:
        scores = softcap * np.tanh(scores / softcap)
    at = position + np.arange(queries)[:, None]
    key = np.arange(k.shape[1])[None, :]
    hidden = (key > at) | ((key <= at - window) if window else False)
    scores = np.where(hidden, -np.inf, scores)
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    weights /= weights.sum(axis=2, keepdims=True)
    return np.einsum("hqk,hkd->qhd", weights, v)


def make_case(
    rng: np.random.Generator, queries: int, heads: tuple[int, int], dim: int, position: int
) -> tuple[Array, Array, Array]:
    """Queries, keys and values; ``heads`` is the number of kv heads and the queries for each."""
    kv_heads, group = heads
    q = rng.standard_normal((queries, kv_heads * group, dim), dtype=np.float32) * 2
    capacity = position + queries + 5
    k = rng.standard_normal((kv_heads, capacity, dim), dtype=np.float32)
    v = rng.standard_normal((kv_heads, capacity, dim), dtype=np.float32)
    # What lies behind the last position was never written and must not be read.
    k[:, position + queries :] = np.nan
    v[:, position + queries :] = np.nan
    return q, k, v


def check(table: str, q: Array, k: Array, v: Array, position: int, **options: Any) -> None:
    options = {"window": 0, "softcap": 0.0, "scale": q.shape[2] ** -0.5, **options}
    half_k, half_v = k.astype(np.float16), v.astype(np.float16)
    seen = position + len(q)
    for keys, values, expected_k, expected_v in (
        (k, v, k, v),
        (half_k.view(np.uint16), half_v.view(np.uint16), half_k, half_v),
    ):
        actual = kernels.attention(table, q, keys, values, position, **options)
        expected = expected_attention(
            q, expected_k[:, :seen], expected_v[:, :seen], position, **options
        )
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("dim", [8, 20, 64, 80, 96, 128, 256])
@pytest.mark.parametrize("group", [1, 3, 4, 8])
def test_attention(table: str, dim: int, group: int, rng: np.random.Generator) -> None:
    for queries, position in [(1, 0), (1, 63), (1, 150), (5, 0), (3, 62), (37, 100)]:
        check(table, *make_case(rng, queries, (2, group), dim, position), position)


@pytest.mark.parametrize("window", [1, 7, 64, 100, 1000])
def test_window(table: str, window: int, rng: np.random.Generator) -> None:
    for queries, position in [(1, 0), (1, 200), (40, 0), (70, 90)]:
        check(table, *make_case(rng, queries, (2, 3), 64, position), position, window=window)


@pytest.mark.parametrize("softcap", [0.5, 5.0, 50.0])
def test_softcap(table: str, softcap: float, rng: np.random.Generator) -> None:
    check(table, *make_case(rng, 20, (1, 4), 64, 130), 130, softcap=softcap, window=50)


def test_large_scores(table: str, rng: np.random.Generator) -> None:
    """Scores of several hundred; whole numbers, so that only the softmax rounds."""
    q, k, v = make_case(rng, 9, (1, 2), 64, 100)
    check(table, np.rint(q) * 32, np.rint(k), v, 100)


def test_a_query_alone_and_in_a_block_gives_the_same_bits(
    table: str, rng: np.random.Generator
) -> None:
    q, k, v = make_case(rng, 45, (2, 3), 80, 70)
    for window in (0, 33):
        block = kernels.attention(table, q, k, v, 70, 0.1, window)
        np.testing.assert_array_equal(block, kernels.attention(table, q, k, v, 70, 0.1, window))
        for i in (0, 9, 10, 44):
            alone = kernels.attention(table, q[i : i + 1], k, v, 70 + i, 0.1, window)
            np.testing.assert_array_equal(block[i], alone[0])
