"""Attention against a plain softmax in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernels.kernel_cases import (
    ATTENTION,
    HEAD_GROUPS,
    HEAD_SIZES,
    PLACES,
    SOFTCAPS,
    WINDOW_PLACES,
    WINDOWS,
    Array,
    expected_attention,
    make_attention,
)
from ops.rows_tree import path_of, tree
from satchel._native import kernels


def check(table: str, q: Array, k: Array, v: Array, position: int, **options: Any) -> None:
    options = {"window": 0, "softcap": 0.0, "scale": q.shape[2] ** -0.5, **options}
    half_k, half_v = k.astype(np.float16), v.astype(np.float16)
    for keys, values, expected_k, expected_v in (
        (k, v, k, v),
        (half_k.view(np.uint16), half_v.view(np.uint16), half_k, half_v),
    ):
        actual = kernels.attention(table, q, keys, values, position, **options)
        ATTENTION.check(actual, expected_attention(q, expected_k, expected_v, position, **options))


@pytest.mark.parametrize("dim", HEAD_SIZES)
@pytest.mark.parametrize("group", HEAD_GROUPS)
def test_attention(table: str, dim: int, group: int, rng: np.random.Generator) -> None:
    for queries, position in PLACES:
        check(table, *make_attention(rng, queries, (2, group), dim, position), position)


@pytest.mark.parametrize("window", WINDOWS)
def test_window(table: str, window: int, rng: np.random.Generator) -> None:
    for queries, position in WINDOW_PLACES:
        check(table, *make_attention(rng, queries, (2, 3), 64, position), position, window=window)


@pytest.mark.parametrize("softcap", SOFTCAPS)
def test_softcap(table: str, softcap: float, rng: np.random.Generator) -> None:
    for queries in (20, 70):  # a short block and a long one
        made = make_attention(rng, queries, (1, 4), 64, 130)
        check(table, *made, 130, softcap=softcap, window=50)


def test_large_scores(table: str, rng: np.random.Generator) -> None:
    """Scores of several hundred; whole numbers, so that only the softmax rounds."""
    for queries in (9, 70):
        q, k, v = make_attention(rng, queries, (1, 2), 64, 100)
        check(table, np.rint(q) * 32, np.rint(k), v, 100)


# Blocks that some tables have kernels of their own for:
# head size, queries of each kv head, queries, position, window.
LONG_BLOCKS = [
    (64, 4, 300, 0, 0),
    (64, 1, 100, 37, 0),
    (80, 3, 64, 0, 0),
    (96, 8, 100, 37, 40),
    (128, 4, 100, 0, 64),
    (128, 3, 64, 37, 1),
    (256, 1, 300, 37, 100),
    (20, 40, 70, 5, 0),
    (1000, 2, 70, 200, 0),
]


@pytest.mark.parametrize(("dim", "group", "queries", "position", "window"), LONG_BLOCKS)
def test_long_blocks(
    table: str,
    dim: int,
    group: int,
    queries: int,
    position: int,
    window: int,
    rng: np.random.Generator,
) -> None:
    made = make_attention(rng, queries, (1, group), dim, position)
    check(table, *made, position, window=window)
    check(table, *made, position, window=window, scale=-(dim**-0.5), softcap=20.0)


def test_long_blocks_of_rising_and_large_scores(table: str, rng: np.random.Generator) -> None:
    """Every key raises the highest score, by little or by much; whole numbers are exact."""
    q, k, v = make_attention(rng, 150, (1, 2), 64, 200)
    q, k = np.ones_like(q), np.rint(k)
    for step in (0.01, 0.25, 4.0):
        k[:, :350, 0] = np.rint(np.arange(350) * step)
        check(table, q, k, v, 200)
        check(table, q, k, v, 200, scale=-0.5)


@pytest.mark.parametrize("bits", [32, 16])
@pytest.mark.parametrize("window", [0, 45])
def test_a_query_in_different_long_blocks_gives_the_same_bits(
    table: str, bits: int, window: int, rng: np.random.Generator
) -> None:
    q, k, v = make_attention(rng, 200, (2, 3), 80, 70)
    if bits == 16:
        k, v = (c.astype(np.float16).view(np.uint16) for c in (k, v))
    whole = kernels.attention(table, q, k, v, 70, 0.1, window)
    for first, last in ((0, 200), (0, 64), (0, 170), (1, 78), (77, 200), (130, 197)):
        part = kernels.attention(table, q[first:last], k, v, 70 + first, 0.1, window)
        np.testing.assert_array_equal(part, whole[first:last])


def test_what_is_not_a_number_stays_so(table: str, rng: np.random.Generator) -> None:
    q, k, v = make_attention(rng, 80, (1, 2), 64, 30)
    k, v = k.astype(np.float16), v.astype(np.float16)
    broken = q.copy()
    broken[40, 1, 3] = np.nan
    y = kernels.attention(table, broken, k.view(np.uint16), v.view(np.uint16), 30, 0.1)
    assert np.isnan(y[40, 1]).all()
    assert np.isnan(y).sum() == 64
    v[0, 2, 5] = np.nan
    y = kernels.attention(table, q, k.view(np.uint16), v.view(np.uint16), 30, 0.1)
    assert np.isnan(y[:, :, 5]).all()
    assert np.isnan(y).sum() == 160
    k[0, 2, 5] = np.nan
    assert np.isnan(
        kernels.attention(table, q, k.view(np.uint16), v.view(np.uint16), 30, 0.1)
    ).all()


def test_a_query_alone_and_in_a_block_gives_the_same_bits(
    table: str, rng: np.random.Generator
) -> None:
    q, k, v = make_attention(rng, 45, (2, 3), 80, 70)
    for window in (0, 33):
        block = kernels.attention(table, q, k, v, 70, 0.1, window)
        np.testing.assert_array_equal(block, kernels.attention(table, q, k, v, 70, 0.1, window))
        for i in (0, 9, 10, 44):
            alone = kernels.attention(table, q[i : i + 1], k, v, 70 + i, 0.1, window)
            np.testing.assert_array_equal(block[i], alone[0])


@pytest.mark.parametrize("bits", [32, 16, 8])
@pytest.mark.parametrize("window", [0, 33, 64])
def test_a_tree_gives_the_bits_of_each_path_in_a_line(
    table: str, bits: int, window: int, rng: np.random.Generator
) -> None:
    """Lookahead decoding is lossless because of this."""
    for queries, position in ((9, 0), (31, 55), (31, 128), (20, 200)):
        q, k, v = make_attention(rng, queries, (2, 3), 80, position)
        if bits == 16:
            k, v = (c.astype(np.float16).view(np.uint16) for c in (k, v))
        elif bits == 8:
            k, v = (
                np.apply_along_axis(lambda row: kernels.quantize_cache(table, row), 2, c)
                for c in (k, v)
            )
        parents = tree(queries, position)
        together = kernels.attention(table, q, k, v, position, 0.1, window, 5.0, parents)
        for i in range(queries):
            line = [*range(position), *(position + node for node in path_of(parents, i))]
            keys, values = (np.ascontiguousarray(c[:, line]) for c in (k, v))
            alone = kernels.attention(
                table, q[i : i + 1], keys, values, len(line) - 1, 0.1, window, 5.0
            )
            np.testing.assert_array_equal(together[i], alone[0])


def test_a_tree_is_checked(table: str, rng: np.random.Generator) -> None:
    q, k, v = make_attention(rng, 3, (1, 1), 8, 4)
    for parents in ([-1, 0], [0, 0, 1], [-1, 0, -2], [-1, 2, 0]):
        with pytest.raises(ValueError, match="parent"):
            kernels.attention(table, q, k, v, 4, 0.1, parents=np.array(parents, np.int32))
