"""Norms, activations, rotary embedding and fp16 against torch and numpy."""

from __future__ import annotations

import numpy as np
import pytest

from kernels import kernel_cases as cases
from kernels.kernel_cases import SIZES
from satchel._native import kernels


@pytest.mark.parametrize("cols", SIZES)
def test_rms_norm(table: str, cols: int, rng: np.random.Generator) -> None:
    x = rng.standard_normal((5, cols), dtype=np.float32) * 3
    w = rng.standard_normal(cols, dtype=np.float32)
    actual = kernels.rms_norm(table, x, w, 1e-5)
    cases.RMS_NORM.check(actual, cases.expected_rms_norm(x, w, 1e-5))


@pytest.mark.parametrize("cols", SIZES)
def test_layer_norm(table: str, cols: int, rng: np.random.Generator) -> None:
    x = rng.standard_normal((5, cols), dtype=np.float32) * 3 + 5
    w, b = rng.standard_normal((2, cols), dtype=np.float32)
    for bias in (None, b):
        actual = kernels.layer_norm(table, x, w, bias, 1e-5)
        cases.LAYER_NORM.check(actual, cases.expected_layer_norm(x, w, bias, 1e-5))


@pytest.mark.parametrize("n", SIZES)
def test_activations(table: str, n: int, rng: np.random.Generator) -> None:
    gate = rng.standard_normal(n, dtype=np.float32) * 10
    up = rng.standard_normal(n, dtype=np.float32)
    cases.SILU.check(kernels.silu_mul(table, gate, up), cases.expected_silu_mul(gate, up))
    cases.GELU.check(kernels.gelu_tanh_mul(table, gate, up), cases.expected_gelu_mul(gate, up))


def test_exponential_is_accurate_everywhere(table: str) -> None:
    x, expected = cases.exponential_inputs(200_001)
    actual = kernels.silu_mul(table, x, np.ones_like(x)).astype(float)
    cases.EXPONENTIAL.check(actual, expected)


def test_activations_at_the_extremes(table: str) -> None:
    gate = cases.ACTIVATION_EXTREMES
    for kernel in (kernels.silu_mul, kernels.gelu_tanh_mul):
        cases.EXTREMES.check(kernel(table, gate, np.ones_like(gate)), cases.EXPECTED_EXTREMES)


@pytest.mark.parametrize(("dim", "rotary"), cases.ROPE_SHAPES)
def test_rope(table: str, dim: int, rotary: int, rng: np.random.Generator) -> None:
    x, cos_sin, expected = cases.make_rope(rng, dim, rotary)
    cases.ROPE.check(kernels.rope(table, x, cos_sin), expected)


@pytest.mark.parametrize("n", SIZES)
def test_add_and_mul(table: str, n: int, rng: np.random.Generator) -> None:
    a, b = rng.standard_normal((2, n), dtype=np.float32)
    np.testing.assert_array_equal(kernels.add(table, a, b), a + b)
    np.testing.assert_array_equal(kernels.mul(table, a, b), a * b)


def test_every_half_becomes_its_float(table: str) -> None:
    halves = np.arange(65536, dtype=np.uint16)
    actual = kernels.half_to_float(table, halves)
    np.testing.assert_array_equal(actual, halves.view(np.float16).astype(np.float32))


def test_every_half_comes_back(table: str) -> None:
    halves = np.arange(65536, dtype=np.uint16).view(np.float16)
    actual = kernels.float_to_half(table, halves.astype(np.float32)).view(np.float16)
    np.testing.assert_array_equal(actual, halves)
    np.testing.assert_array_equal(np.signbit(actual), np.signbit(halves))


def test_floats_round_to_the_nearest_half(table: str, rng: np.random.Generator) -> None:
    x, expected = cases.floats_to_round(rng, 200_000)
    np.testing.assert_array_equal(kernels.float_to_half(table, x).view(np.float16), expected)
