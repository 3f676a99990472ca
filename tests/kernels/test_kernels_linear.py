"""Linear layers of every encoding against integer and float64 arithmetic in numpy."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.kernel_cases import (
    FLOAT_SHAPES,
    LONG_ROW_COUNTS,
    QUANTIZE_SHAPES,
    ROW_COUNTS,
    SHAPES,
    Array,
    codes_from_zero,
    expected_quantized,
    largest_products,
    linear_tolerance,
    rows_to_quantize,
    whole_steps,
)
from satchel._native import kernels
from satchel.encodings import packing
from satchel.encodings.steps import needed_scales
from satchel.quantize.affine import QuantizedWeight


def assert_close(actual: Array, expected: Array) -> None:
    linear_tolerance(expected).check(actual, expected)


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


@pytest.mark.parametrize("shape", SHAPES)
def test_codes_that_count_from_zero(
    table: str, shape: tuple[int, int, int], rng: np.random.Generator
) -> None:
    rows, cols, group = shape
    w = rng.standard_normal((rows, cols), dtype=np.float32)
    packed = packing.pack_matrix("q4", w, group)
    codes, scales = packing.quantize_groups(w, 4, group)
    for m in ROW_COUNTS:
        x = rng.standard_normal((m, cols), dtype=np.float32)
        y = kernels.linear(table, x, *packed, "q4_min", rows, group)
        assert_close(y, expected_quantized(x, codes_from_zero(codes), scales, None))
        for i in {0, m - 1}:
            alone = kernels.linear(table, x[i : i + 1], *packed, "q4_min", rows, group)
            np.testing.assert_array_equal(y[i], alone[0])
    meant = codes_from_zero(codes) * np.repeat(scales.astype(np.float32), group, axis=1)
    unpacked = kernels.unpack_row(table, *packed, "q4_min", rows, cols, group, rows - 1)
    np.testing.assert_array_equal(unpacked, meant[-1])


@pytest.mark.parametrize("encoding", ["q4", "q4_min", "q8"])
@pytest.mark.parametrize("shape", [*SHAPES, (40, 2112, 32), (19, 1160, 8)])
def test_quantized_linear_of_long_blocks(
    table: str, encoding: str, shape: tuple[int, int, int], rng: np.random.Generator
) -> None:
    rows, cols, group = shape
    w = rng.standard_normal((rows, cols), dtype=np.float32)
    bias = rng.standard_normal(rows, dtype=np.float32)
    codes, scales = packing.pack_matrix(encoding[:2], w, group)
    w_codes, w_scales = packing.quantize_groups(w, int(encoding[1]), group)
    used = whole_steps(w_scales, group) if (table, encoding) == ("amx", "q4") else w_scales
    if encoding == "q4_min":
        w_codes = codes_from_zero(w_codes)
    for m in LONG_ROW_COUNTS:
        x = rng.standard_normal((m, cols), dtype=np.float32)
        y = kernels.linear(table, x, codes, scales, encoding, rows, group, bias)
        assert_close(y, expected_quantized(x, w_codes, used, bias))
        exact = expected_quantized(x, w_codes, w_scales, bias)
        np.testing.assert_allclose(y, exact, rtol=0, atol=3e-4 * np.abs(exact).max())


def with_own_scales(w: Array, group: int, rows: slice) -> tuple[Array, Array]:
    """Codes and scales, of which those of some rows are no multiples of a step."""
    codes, scales = packing.quantize_groups(w, 4, group)
    groups = w[rows].reshape(-1, w.shape[1] // group, group)
    own = needed_scales(groups).astype(np.float16)
    scales[rows] = own
    codes[rows] = np.clip(np.rint(groups / own.astype(np.float32)[..., None]), -8, 7).reshape(
        -1, w.shape[1]
    )
    return codes, scales


@pytest.mark.parametrize("shape", [(112, 2112, 32), (33, 576, 64), (70, 1160, 8), (290, 4128, 32)])
@pytest.mark.parametrize("rows", [slice(None), slice(20, 21), slice(37, None, 16)])
def test_long_blocks_of_rows_without_steps(
    table: str, shape: tuple[int, int, int], rows: slice, rng: np.random.Generator
) -> None:
    """All rows, one row of the second tile, or one of every tile from the third on."""
    n, cols, group = shape
    w = rng.standard_normal((n, cols), dtype=np.float32)
    w_codes, w_scales = with_own_scales(w, group, rows)
    packed = packing.pack_quantized("q4", QuantizedWeight(w_codes, w_scales))
    x = rng.standard_normal((100, cols), dtype=np.float32)
    y = kernels.linear(table, x, *packed, "q4", n, group)
    used = whole_steps(w_scales, group) if table == "amx" else w_scales
    assert_close(y, expected_quantized(x, w_codes, used, None))


@pytest.mark.parametrize("m", [513, 1060])
def test_blocks_in_several_passes(table: str, m: int, rng: np.random.Generator) -> None:
    """More rows than pass over the weights together, and a last tile of rows that is not full."""
    w = rng.standard_normal((70, 96), dtype=np.float32)
    x = rng.standard_normal((m, 96), dtype=np.float32)
    w_codes, w_scales = with_own_scales(w, 32, slice(40, None))
    packed = packing.pack_quantized("q4", QuantizedWeight(w_codes, w_scales))
    y = kernels.linear(table, x, *packed, "q4", 70, 32)
    used = whole_steps(w_scales, 32) if table == "amx" else w_scales
    assert_close(y, expected_quantized(x, w_codes, used, None))


def test_all_codes_with_all_multiples_of_a_step(table: str, rng: np.random.Generator) -> None:
    multiples = np.array([*range(-15, 17), 16, 0], np.float32)
    step = np.float32(0x5B * 2.0**-14)  # seven bits
    codes = np.tile(np.arange(-8, 8, dtype=np.int8), (48, 2 * len(multiples)))
    scales = np.stack([rng.permutation(multiples) for _ in range(48)]) * step
    w_scales = scales.astype(np.float16)
    np.testing.assert_array_equal(w_scales.astype(np.float32), scales)
    packed = packing.pack_quantized("q4", QuantizedWeight(codes, w_scales))
    x = rng.standard_normal((67, codes.shape[1]), dtype=np.float32)
    y = kernels.linear(table, x, *packed, "q4", 48, 32)
    assert_close(y, expected_quantized(x, codes, w_scales, None))


@pytest.mark.parametrize("scale", [np.inf, np.nan])
@pytest.mark.parametrize("rows", [1, 64])
def test_scales_that_are_not_finite_reach_the_result(
    table: str, scale: float, rows: int, rng: np.random.Generator
) -> None:
    codes, scales = packing.pack_matrix("q4", rng.standard_normal((16, 64)), 32)
    scales = scales.copy()
    scales.view(np.float16).reshape(-1)[3] = scale  # [tile][group][16]: output 3
    x = rng.standard_normal((rows, 64), dtype=np.float32)
    y = kernels.linear(table, x, codes, scales, "q4", 16, 32)
    assert not np.isfinite(y[:, 3]).any()
    assert np.isfinite(np.delete(y, 3, axis=1)).all()


@pytest.mark.parametrize("encoding", ["f32", "f16"])
@pytest.mark.parametrize(("rows", "cols"), FLOAT_SHAPES)
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


@pytest.mark.parametrize("encoding", ["q4", "q8"])
@pytest.mark.parametrize("group", [32, 512])
def test_largest_products_do_not_saturate(table: str, encoding: str, group: int) -> None:
    x, w = largest_products(encoding, group)
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
    for m in (37, 63, 70):
        x = rng.standard_normal((m, cols), dtype=np.float32)
        block = kernels.linear(table, x, codes, scales, encoding, rows, group)
        again = kernels.linear(table, x, codes, scales, encoding, rows, group)
        np.testing.assert_array_equal(block, again)
        if table == "amx" and encoding == "q4" and m >= 64:
            continue  # long blocks have sums of their own
        for i in (0, 7, 15, 16, 31, 32, 36, m - 1):
            alone = kernels.linear(table, x[i : i + 1], codes, scales, encoding, rows, group)
            np.testing.assert_array_equal(block[i], alone[0])


@pytest.mark.parametrize("encoding", ["q4", "q4_min", "q8"])
@pytest.mark.parametrize("group", [16, 32, 128, 640])
@pytest.mark.parametrize("own_scales", [False, True])
def test_activations_of_16_bits(
    table: str, encoding: str, group: int, own_scales: bool, rng: np.random.Generator
) -> None:
    """Alone and in any short block a token has the same bits, whatever its scales are."""
    rows, cols = 70, 640
    w = rng.standard_normal((rows, cols), dtype=np.float32)
    w_codes, w_scales = packing.quantize_groups(w, 8 if encoding == "q8" else 4, group)
    if own_scales:  # whole multiples of a step no longer
        w_scales = (w_scales * rng.uniform(0.9, 1.1, w_scales.shape)).astype(np.float16)
    stored = "q8" if encoding == "q8" else "q4"
    packed = packing.pack_quantized(stored, QuantizedWeight(w_codes, w_scales))
    meant = codes_from_zero(w_codes) if encoding == "q4_min" else w_codes
    weights = meant * np.repeat(w_scales.astype(np.float64), group, axis=1)
    x = rng.standard_normal((63, cols), dtype=np.float32)
    x_codes, x_scales = packing.quantize_activations(x, 16)
    block = kernels.linear(table, x, *packed, encoding, rows, group, bits=16)
    assert_close(block, x_codes * x_scales[:, None].astype(np.float64) @ weights.T)
    for m in (1, 2, 3, 4, 5, 31, 32, 40):
        for first in (0, 63 - m):
            part = x[first : first + m]
            fewer = kernels.linear(table, part, *packed, encoding, rows, group, bits=16)
            np.testing.assert_array_equal(fewer, block[first : first + m])


@pytest.mark.parametrize(("cols", "group"), QUANTIZE_SHAPES)
def test_quantize_rows(table: str, cols: int, group: int, rng: np.random.Generator) -> None:
    x = rows_to_quantize(rng, cols)
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
