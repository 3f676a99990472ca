"""Linear layers of every encoding against integer and float64 arithmetic in numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from satchel._native import kernels
from satchel.quantize import packing

Array = NDArray[Any]

ROW_COUNTS = (1, 2, 3, 5, 8, 17, 33)
# rows, columns, group; the last ones are one group per row, not a multiple of 64
SHAPES = [
    (16, 32, 32),
    (40, 64, 32),
    (33, 320, 64),
    (50, 384, 128),
    (17, 1280, 256),
    (35, 96, 96),
    (23, 80, 40),
    (39, 80, 80),
    (31, 1096, 1096),
    (48, 1024, 1024),
]


def expected_quantized(x: Array, codes: Array, scales: Array, bias: Array | None) -> Array:
    """Exact integer sums per group, then float64."""
    x_codes, x_scales = packing.quantize_activations(x)
    groups = scales.shape[1]
    xs = x_codes.reshape(len(x), groups, -1).astype(np.int64)
    ws = codes.reshape(len(codes), groups, -1).astype(np.int64)
    dots = np.einsum("mgk,ngk->mng", xs, ws)
    y: Array = (dots * scales.astype(np.float64)).sum(axis=2) * x_scales[:, None].astype(float)
    return y if bias is None else y + bias


def assert_close(actual: Array, expected: Array) -> None:
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("encoding", ["q4", "q8"])
@pytest.mark.parametrize("shape", SHAPES)
def test_quantized_linear(
    table: str, encoding: str, shape: tuple[int, int, int], rng: np.random.Generator
) -> None:
    rows, cols, group = shape
    w = rng.standard_normal((rows, cols), dtype=np.float32)
    bias = rng.standard_normal(rows, dtype=np.float32)
    codes, scales = packing.pack_matrix(encoding, w, group)
    reference = packing.quantize_groups(w, int(encoding[1]), group)
    for m in ROW_COUNTS:
        x = rng.standard_normal((m, cols), dtype=np.float32)
        for b in (None, bias):
            y = kernels.linear(table, x, codes, scales, encoding, rows, group, b)
            assert_close(y, expected_quantized(x, *reference, b))


@pytest.mark.parametrize("encoding", ["f32", "f16"])
@pytest.mark.parametrize(("rows", "cols"), [(16, 32), (33, 77), (100, 130)])
def test_float_linear(
    table: str, encoding: str, rows: int, cols: int, rng: np.random.Generator
) -> None:
    w = rng.standard_normal((rows, cols), dtype=np.float32)
    stored = w if encoding == "f32" else w.astype(np.float16)
    bias = rng.standard_normal(rows, dtype=np.float32)
    codes, _ = packing.pack_matrix(encoding, w)
    for m in ROW_COUNTS:
        x = rng.standard_normal((m, cols), dtype=np.float32)
        expected = x.astype(float) @ stored.astype(float).T
        assert_close(kernels.linear(table, x, codes, None, encoding, rows), expected)
        with_bias = kernels.linear(table, x, codes, None, encoding, rows, bias=bias)
        assert_close(with_bias, expected + bias)


@pytest.mark.parametrize(("encoding", "lowest", "highest"), [("q4", -8, 7), ("q8", -127, 127)])
@pytest.mark.parametrize("group", [32, 512])
def test_largest_products_do_not_saturate(
    table: str, encoding: str, lowest: int, highest: int, group: int
) -> None:
    w = np.full((32, 512), lowest, np.float32)
    w[1::2] = highest
    w[:, 0::group] = lowest if encoding == "q4" else highest  # keeps each group's scale at 1
    x = np.full((5, 512), 127, np.float32)
    x[1::2] = -127
    x[4, ::2] = -127
    codes, scales = packing.pack_matrix(encoding, w, group)
    y = kernels.linear(table, x, codes, scales, encoding, 32, group)
    np.testing.assert_array_equal(y, x @ w.T)


@pytest.mark.parametrize("encoding", ["f32", "f16", "q4", "q8"])
def test_only_the_tiles_asked_for_are_written(
    table: str, encoding: str, rng: np.random.Generator
) -> None:
    rows, cols, group = 16 * 6 + 3, 128, 32
    codes, scales = packing.pack_matrix(encoding, rng.standard_normal((rows, cols)), group)
    for m in (1, 6, 33):
        x = rng.standard_normal((m, cols), dtype=np.float32)
        whole = kernels.linear(table, x, codes, scales, encoding, rows, group)
        for begin, end in [(0, 1), (1, 4), (2, 7), (6, 7), (3, 3)]:
            part = kernels.linear(
                table, x, codes, scales, encoding, rows, group, tile_begin=begin, tile_end=end
            )
            inside = slice(begin * 16, end * 16)
            np.testing.assert_array_equal(part[:, inside], whole[:, inside])
            assert np.isnan(np.delete(part, np.s_[inside], axis=1)).all()


@pytest.mark.parametrize("encoding", ["f32", "f16", "q4", "q8"])
@pytest.mark.parametrize("group", [32, 128, 640])
def test_a_row_alone_and_in_a_block_gives_the_same_bits(
    table: str, encoding: str, group: int, rng: np.random.Generator
) -> None:
    rows, cols = 70, 640
    codes, scales = packing.pack_matrix(encoding, rng.standard_normal((rows, cols)), group)
    x = rng.standard_normal((37, cols), dtype=np.float32)
    block = kernels.linear(table, x, codes, scales, encoding, rows, group)
    again = kernels.linear(table, x, codes, scales, encoding, rows, group)
    np.testing.assert_array_equal(block, again)
    for i in (0, 7, 15, 16, 31, 32, 36):
        alone = kernels.linear(table, x[i : i + 1], codes, scales, encoding, rows, group)
        np.testing.assert_array_equal(block[i], alone[0])


@pytest.mark.parametrize(("cols", "group"), [(32, 32), (80, 40), (100, 4), (576, 64), (700, 700)])
def test_quantize_rows(table: str, cols: int, group: int, rng: np.random.Generator) -> None:
    x = rng.standard_normal((6, cols), dtype=np.float32) * 10.0 ** rng.integers(-6, 6, (6, 1))
    x = x.astype(np.float32)
    x[1] = 0
    x[2, :] = 1e-40
    x[3, 0] = np.abs(x[3]).max() * 4
    codes, scales, sums = kernels.quantize_rows(table, x, group)
    expected_codes, expected_scales = packing.quantize_activations(x)
    assert codes.shape == (6, (cols + 63) // 64 * 64)
    np.testing.assert_array_equal(codes[:, :cols], expected_codes)
    assert not codes[:, cols:].any()
    np.testing.assert_array_equal(scales, expected_scales)
    grouped = expected_codes.reshape(6, cols // group, group).astype(np.int32)
    np.testing.assert_array_equal(sums, grouped.sum(axis=2))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_reach_the_result(table: str, bad: float) -> None:
    x = np.ones((2, 64), np.float32)
    x[1, 37] = bad
    codes, scales = packing.pack_matrix("q4", np.ones((16, 64), np.float32), 32)
    y = kernels.linear(table, x, codes, scales, "q4", 16, 32)
    assert np.isfinite(y[0]).all()
    assert not np.isfinite(y[1]).any()


@pytest.mark.parametrize("encoding", ["f32", "f16", "q4", "q8"])
def test_unpack_row(table: str, encoding: str, rng: np.random.Generator) -> None:
    rows, cols, group = 37, 96, 32
    codes, scales = packing.pack_matrix(encoding, rng.standard_normal((rows, cols)), group)
    expected = packing.unpack_matrix(encoding, codes, scales, rows, cols, group)
    for row in (0, 15, 16, 36):
        actual = kernels.unpack_row(table, codes, scales, encoding, rows, cols, group, row)
        np.testing.assert_array_equal(actual, expected[row])
