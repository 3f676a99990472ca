"""The native packer, activations and cache rows have the numbers of the numpy references."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from satchel._native import kernels
from satchel.encodings import packing
from satchel.errors import RecipeError
from satchel.quantize.blockwise import dequantize_blocks, quantize_blocks
from satchel.quantize.cache import dequantize_cache, quantize_cache
from support.arrays import generator, normal

Array = NDArray[Any]

TABLES = kernels.available()


def _awkward(rows: int, cols: int) -> Array:
    """Rows of very different sizes, with zeros of both signs, ties, and numbers below any step."""
    rng = generator(rows, cols)
    w = rng.standard_normal((rows, cols)) * 10.0 ** rng.integers(-9, 4, (rows, 1))
    w[1] = 0
    w[2] = -0.0
    w[3] = np.where(np.arange(cols) % 2, 0.5, -0.5)
    w[4] = np.round(w[4] * 4) / 4
    w[5] = 1e-44
    w[6, : cols // 2] *= 1e-4
    return w.astype(np.float32)


@pytest.mark.parametrize(
    ("rows", "cols", "block"), [(16, 32, 32), (37, 256, 64), (40, 528, 16), (33, 600, 600)]
)
def test_blockwise_bytes(rows: int, cols: int, block: int) -> None:
    w = _awkward(rows, cols)
    expected_codes, expected_scales = packing.pack_matrix("lpbq4", w, block)
    for threads in (1, 3):
        codes, scales, stats = kernels.pack(w, "lpbq4", block, threads=threads)
        np.testing.assert_array_equal(codes, expected_codes)
        np.testing.assert_array_equal(scales, expected_scales)
        assert stats["first_bad"] == -1
    sizes = (codes.nbytes, scales.nbytes)
    assert kernels.packed_sizes("lpbq4", rows, cols, block) == sizes
    assert packing.packed_sizes("lpbq4", rows, cols, block) == sizes
    meant = packing.unpack_matrix("lpbq4", codes, scales, rows, cols, block)
    np.testing.assert_array_equal(meant, dequantize_blocks(*quantize_blocks(w, block)))
    wide = w.astype(float)
    np.testing.assert_allclose(stats["squared_weight"], (wide**2).sum(), rtol=1e-12)
    np.testing.assert_allclose(stats["squared_error"], ((wide - meant) ** 2).sum(), rtol=1e-12)


@pytest.mark.parametrize("block", [16, 32, 64, 128])
def test_blockwise_is_what_8_bits_per_channel_can_hold(block: int) -> None:
    w = normal(40, 256, scale=0.02) * (1 + 9 * generator("rows").random((40, 1)))
    codes, scales, factors = quantize_blocks(w, block)
    assert codes.min() == -8 and codes.max() == 7
    assert scales.min() >= 1 and scales.max() <= 16
    expanded = codes.astype(int) * np.repeat(scales, block, axis=1)
    assert np.abs(expanded).max() <= 128
    np.testing.assert_allclose(
        dequantize_blocks(codes, scales, factors), expanded * factors[:, None]
    )


@pytest.mark.parametrize("block", [16, 32, 64, 128])
def test_block_scales_are_as_good_as_the_best_of_all_sixteen(block: int) -> None:
    w = normal(48, 256, seed=block)
    codes, scales, factors = quantize_blocks(w, block)
    blocks = w.astype(float).reshape(48, -1, block)

    def error(scale: Any) -> Array:
        step = (scale * factors[:, None].astype(float))[..., None]
        off = np.clip(np.rint(blocks / step), -8, 7) * step - blocks
        return np.asarray((off**2).sum(axis=2))

    least = np.min([error(scale) for scale in range(1, 17)], axis=0)
    chosen = dequantize_blocks(codes, scales, factors)
    assert ((chosen - w) ** 2).sum() <= least.sum() * 1.005
    rounded_up = np.ceil(np.abs(blocks).max(axis=2) / 7.5 / factors[:, None])
    assert ((chosen - w) ** 2).sum() < 0.95 * error(np.clip(rounded_up, 1, 16)).sum()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_the_first_bad_value_is_reported(bad: float) -> None:
    w = np.ones((40, 64), np.float32)
    w[17, 60] = w[33, 5] = bad
    for threads in (1, 2):
        assert kernels.pack(w, "lpbq4", 32, threads=threads)[2]["first_bad"] == 17 * 64 + 60


def test_blocks_that_do_not_fit() -> None:
    with pytest.raises(RecipeError, match="does not fit"):
        packing.packed_sizes("lpbq4", 16, 64, 12)
    with pytest.raises(ValueError, match="divide the columns"):
        kernels.packed_sizes("lpbq4", 16, 64, 12)


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("cols", [4, 32, 100, 576])
def test_activations_of_16_bits_are_two_digits(table: str, cols: int) -> None:
    x = normal(6, cols) * np.float32(10.0) ** np.arange(-6, 6, 2, dtype=np.float32)[:, None]
    x[1] = 0
    x[2] = 1e-40
    x[3, 0] = np.abs(x[3]).max() * 4
    x = x.astype(np.float32)
    digits, scales, sums = kernels.quantize_rows(table, x, cols // 4, 16)
    codes, steps = packing.quantize_activations(x, 16)
    assert np.abs(digits).max() <= 127
    np.testing.assert_array_equal(digits[:, cols:], 0)
    digits = digits[:, :cols].astype(int)
    np.testing.assert_array_equal(digits[0::2] * 255 + digits[1::2], codes)
    np.testing.assert_array_equal(scales[1::2], steps)
    np.testing.assert_array_equal(scales[0::2], steps * np.float32(255))
    np.testing.assert_array_equal(sums, digits.reshape(12, 4, -1).sum(axis=2))
    assert np.abs(codes).max() == 32512


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("dim", [1, 3, 16, 33, 64, 80, 128])
def test_cache_rows(table: str, dim: int) -> None:
    rows = normal(12, dim) * np.float32(10.0) ** np.arange(-6, 6, dtype=np.float32)[:, None]
    rows[3] += 1000
    rows[4] = 2.5
    rows[5] = -0.0
    rows[6] = 1e-42 * np.arange(dim)
    for row in rows.astype(np.float32):
        np.testing.assert_array_equal(kernels.quantize_cache(table, row), quantize_cache(row))


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("bad", [[np.nan], [np.inf], [-np.inf], [3e38, -3e38]])
def test_a_cache_row_that_is_not_finite(table: str, bad: list[float]) -> None:
    row = normal(40)
    row[7 : 7 + len(bad)] = bad
    stored = kernels.quantize_cache(table, row)
    np.testing.assert_array_equal(stored, quantize_cache(row))
    assert np.isnan(dequantize_cache(stored)).all()


def test_cache_rows_are_within_half_a_step() -> None:
    x = normal(5, 7, 64, scale=3) + 1
    step = (x.max(-1, keepdims=True) - x.min(-1, keepdims=True)) / 255
    assert (np.abs(dequantize_cache(quantize_cache(x)) - x) <= step * 0.5001).all()


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("dim", [8, 64, 80, 20])
def test_a_query_alone_and_in_a_block_gives_the_same_bits(table: str, dim: int) -> None:
    q = normal(45, 6, dim)
    k, v = (quantize_cache(normal(2, 120, dim, seed=seed)) for seed in "kv")
    for window in (0, 33):
        block = kernels.attention(table, q, k, v, 70, 0.1, window)
        for i in (0, 9, 10, 44):
            alone = kernels.attention(table, q[i : i + 1], k, v, 70 + i, 0.1, window)
            np.testing.assert_array_equal(block[i], alone[0])
        exact = [dequantize_cache(c) for c in (k, v)]
        np.testing.assert_allclose(
            block, kernels.attention(table, q, *exact, 70, 0.1, window), atol=1e-5
        )
