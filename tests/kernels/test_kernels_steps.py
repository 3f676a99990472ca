"""Scales that are stored as whole numbers and steps mean what they mean as 16-bit floats."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from gguf.quants import dequantize as gguf_dequantize
from gguf.quants import quantize as gguf_quantize

from kernels.kernel_cases import Array, expected_quantized, linear_tolerance
from satchel._native import kernels
from satchel.encodings import packing
from satchel.encodings.steps import multiplied
from satchel.errors import RecipeError
from satchel.quantize.affine import QuantizedWeight

SHAPES = [(40, 2112, 32), (112, 1024, 32), (33, 576, 64), (70, 1160, 8), (48, 128, 128)]
ROW_COUNTS = (1, 2, 3, 5, 8, 17, 33, 64, 79, 130)


def uneven_weights(rng: np.random.Generator, rows: int, cols: int) -> Array:
    """Some rows have a few weights that dwarf the others, so that steps must be fine."""
    w = rng.standard_normal((rows, cols), dtype=np.float32)
    w[20:22, ::7] *= 60
    w[-1, 5] *= 500
    w[3] = 0
    return w


SCALE_RUNS = ("avx512", "amx")  # tables that scale a run's sum once: see avx512_steps.inl


def scaled_runs(x: Array, codes: Array, multiples: Array, steps: Array, bias: Array) -> Array:
    """Whole numbers for each run of 1,024 columns, which are scaled and added in floats."""
    activations, scales = packing.quantize_activations(x)
    group = codes.shape[1] // multiples.shape[1]
    weights = codes.astype(np.int64) * np.repeat(multiples, group, axis=1)
    total = np.zeros((len(x), len(codes)), np.float32)
    for run, first in enumerate(range(0, codes.shape[1], 1024)):
        columns = np.s_[:, first : first + 1024]
        sums = (activations[columns].astype(np.int64) @ weights[columns].T).astype(np.float32)
        # A product of two floats is exact in 64 bits, as in a fused multiply-add.
        total = (sums.astype(np.float64) * steps[:, run] + total).astype(np.float32)
    return total * scales[:, None] + bias


@pytest.mark.parametrize("shape", SHAPES)
def test_a_run_is_scaled_once_in_blocks_of_any_length(
    table: str, shape: tuple[int, int, int], rng: np.random.Generator
) -> None:
    """So that rows have the same bits alone and beside others."""
    if table not in SCALE_RUNS:
        pytest.skip("scales group by group")
    rows, cols, group = shape
    quantized = packing.quantize_steps(uneven_weights(rng, rows, cols), group)
    assert group == cols or np.abs(quantized[1]).max() > 16  # not all of them fit into bytes
    packed = packing.pack_steps(*quantized)
    bias = rng.standard_normal(rows, dtype=np.float32)
    x = rng.standard_normal((130, cols), dtype=np.float32)
    expected = scaled_runs(x, *quantized, bias)
    for m in (*range(1, 15), 31, 32, 33, 63, 64, 130):
        if table == "amx" and m >= 64:
            continue  # long blocks have sums of their own
        y = kernels.linear(table, x[:m], *packed, "q4_steps", rows, group, bias)
        np.testing.assert_array_equal(y, expected[:m])


@pytest.mark.parametrize("shape", SHAPES)
def test_the_same_numbers_as_with_scales_of_16_bits(
    table: str, shape: tuple[int, int, int], rng: np.random.Generator
) -> None:
    rows, cols, group = shape
    packed = packing.pack_matrix("q4_steps", uneven_weights(rng, rows, cols), group)
    codes, scales = packing.unpack_codes("q4_steps", *packed, rows, cols, group)
    halves = packing.pack_quantized("q4", QuantizedWeight(codes, scales))
    bias = rng.standard_normal(rows, dtype=np.float32)
    for m in ROW_COUNTS:
        x = rng.standard_normal((m, cols), dtype=np.float32)
        y = kernels.linear(table, x, *packed, "q4_steps", rows, group, bias)
        same = kernels.linear(table, x, *halves, "q4", rows, group, bias)
        if table in SCALE_RUNS:
            np.testing.assert_allclose(y, same, rtol=0, atol=linear_tolerance(y).atol)
        else:
            np.testing.assert_array_equal(y, same)
        begin, end = 1, -(-rows // 16)
        part = kernels.linear(
            table, x, *packed, "q4_steps", rows, group, bias, tile_begin=begin, tile_end=end
        )
        np.testing.assert_array_equal(part[:, 16:], y[:, 16:])
    for row in (0, 20, rows - 1):
        unpacked = kernels.unpack_row(table, *packed, "q4_steps", rows, cols, group, row)
        np.testing.assert_array_equal(
            unpacked, kernels.unpack_row(table, *halves, "q4", rows, cols, group, row)
        )


@pytest.mark.parametrize("m", [1, 4, 70])
def test_all_whole_numbers(table: str, m: int, rng: np.random.Generator) -> None:
    multiples = np.tile(np.array([*range(-127, 128), 0], np.int8), (20, 1))
    steps = (rng.integers(-15, 16, (20, 8)) / 1024).astype(np.float32)  # four bits
    codes = rng.integers(-8, 8, (20, 256 * 32)).astype(np.int8)
    packed = packing.pack_steps(codes, multiples, steps)
    x = rng.standard_normal((m, codes.shape[1]), dtype=np.float32)
    exact = multiples * np.repeat(steps.astype(np.float64), 32, axis=1)
    expected = expected_quantized(x, codes, exact, None)
    y = kernels.linear(table, x, *packed, "q4_steps", 20, 32)
    bound = 3e-4 if table == "amx" and m >= 64 else 1e-5  # see amx_whole.cpp
    np.testing.assert_allclose(y, expected, rtol=0, atol=bound * np.abs(expected).max())


@pytest.mark.parametrize("bad", [np.nan, np.inf, 3e38])
def test_steps_of_any_size_stay_in_their_row(
    table: str, bad: float, rng: np.random.Generator
) -> None:
    codes, multiples, steps = packing.quantize_steps(uneven_weights(rng, 40, 2112), 32)
    x = rng.standard_normal((70, 2112), dtype=np.float32)
    for m in (1, 8, 70):
        y = kernels.linear(
            table, x[:m], *packing.pack_steps(codes, multiples, steps), "q4_steps", 40, 32
        )
        broken = steps.copy()
        broken[[17, 20], 1] = bad
        other = kernels.linear(
            table, x[:m], *packing.pack_steps(codes, multiples, broken), "q4_steps", 40, 32
        )
        rest = np.delete(np.arange(40), [17, 20])
        atol = linear_tolerance(y).atol  # AMX may take the tile's other rows another way
        np.testing.assert_allclose(other[:, rest], y[:, rest], rtol=0, atol=atol)
        assert not np.isfinite(other[:, 17]).any()


def test_products_are_exact_in_16_bits(rng: np.random.Generator) -> None:
    """From the smallest to the largest scales that 16 bits hold."""
    sizes = np.exp2(np.linspace(-30, 18.9, 400))[:, None]
    w = (rng.uniform(-1, 1, (400, 2048)) * sizes).astype(np.float32)
    w[::3, :96] *= np.float32(2**-5)  # some with fine steps
    w[-1, 0] = 8 * 65504
    codes, multiples, steps = packing.quantize_steps(w, 32)
    exact = multiples * np.repeat(steps.astype(np.float64), 32, axis=1)
    scales = multiplied(multiples, steps, 32)
    np.testing.assert_array_equal(scales.astype(np.float64), exact)
    assert np.abs(multiples).max() > 100
    half_step = np.abs(scales).max(axis=1, keepdims=True) / 2 + 2.0**-21
    meant = packing.dequantize_groups(codes, scales)
    clipped = 1 + 8 * (w == 8 * 65504)  # the largest weight of all has no larger scale
    assert (np.abs(meant - w) <= 1.3 * half_step * clipped * 3).all()


def test_uneven_runs_are_more_exact_than_gguf(rng: np.random.Generator) -> None:
    """Although its scales are free, and ours are bytes times a step."""
    w, kind = rng.standard_normal((64, 1024), dtype=np.float32), gguf.GGMLQuantizationType.Q4_0
    w.reshape(64, 32, 32)[:] *= np.exp2(rng.uniform(-5, 0, (64, 32, 1))).astype(np.float32)
    theirs = gguf_dequantize(gguf_quantize(w, kind), kind)
    codes, multiples, steps = packing.quantize_steps(w, 32)
    assert (np.abs(multiples).max(axis=1) > 16).mean() > 0.5  # mostly fine steps
    ours = packing.dequantize_groups(codes, multiplied(multiples, steps, 32))
    assert ((ours - w) ** 2).sum() < 1.0 * ((theirs - w) ** 2).sum()


def test_groups_that_do_not_divide_a_run() -> None:
    with pytest.raises(RecipeError, match="group size 48 does not fit 96 columns in q4_steps") as e:
        packing.packed_sizes("q4_steps", 16, 96, 48)
    assert "1024" in e.value.advice
    with pytest.raises(ValueError, match="must divide 1024: 48"):
        kernels.packed_sizes("q4_steps", 16, 96, 48)
