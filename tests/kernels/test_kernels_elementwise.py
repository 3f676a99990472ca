"""Norms, activations, rotary embedding and fp16 against torch and numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from satchel._native import kernels

SIZES = [1, 3, 16, 33, 100, 576]


@pytest.mark.parametrize("cols", SIZES)
def test_rms_norm(table: str, cols: int, rng: np.random.Generator) -> None:
    x = rng.standard_normal((5, cols), dtype=np.float32) * 3
    w = rng.standard_normal(cols, dtype=np.float32)
    actual = kernels.rms_norm(table, x, w, 1e-5)
    weight = torch.from_numpy(w).double()
    expected = functional.rms_norm(torch.from_numpy(x).double(), [cols], weight, 1e-5)
    np.testing.assert_allclose(actual, expected, rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("cols", SIZES)
def test_layer_norm(table: str, cols: int, rng: np.random.Generator) -> None:
    x = rng.standard_normal((5, cols), dtype=np.float32) * 3 + 5
    w, b = rng.standard_normal((2, cols), dtype=np.float32)
    for bias in (None, b):
        actual = kernels.layer_norm(table, x, w, bias, 1e-5)
        expected = functional.layer_norm(
            torch.from_numpy(x).double(),
            [cols],
            torch.from_numpy(w).double(),
            None if bias is None else torch.from_numpy(bias).double(),
            1e-5,
        )
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("n", SIZES)
def test_activations(table: str, n: int, rng: np.random.Generator) -> None:
    gate = rng.standard_normal(n, dtype=np.float32) * 10
    up = rng.standard_normal(n, dtype=np.float32)
    g, u = torch.from_numpy(gate).double(), torch.from_numpy(up).double()
    silu = kernels.silu_mul(table, gate, up)
    np.testing.assert_allclose(silu, functional.silu(g) * u, rtol=2e-6, atol=1e-12)
    gelu = kernels.gelu_tanh_mul(table, gate, up)
    expected = functional.gelu(g, approximate="tanh") * u
    np.testing.assert_allclose(gelu, expected, rtol=5e-6, atol=1e-9)


def test_exponential_is_accurate_everywhere(table: str) -> None:
    """silu(x) / x = 1 / (1 + exp(-x)) shows the vector exponential over its whole range."""
    x = np.linspace(-85, 85, 200_001, dtype=np.float32)
    x = x[x != 0]
    actual = kernels.silu_mul(table, x, np.ones_like(x)).astype(float)
    wide = x.astype(float)
    np.testing.assert_allclose(actual, wide / (1 + np.exp(-wide)), rtol=1e-6)


def test_activations_at_the_extremes(table: str) -> None:
    gate = np.array([-1e30, -200, -89, 0, 89, 200, 1e30, np.nan], np.float32)
    one = np.ones_like(gate)
    expected = [0, 0, 0, 0, 89, 200, 1e30, np.nan]
    for kernel in (kernels.silu_mul, kernels.gelu_tanh_mul):
        np.testing.assert_allclose(kernel(table, gate, one), expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(("dim", "rotary"), [(64, 64), (80, 32), (12, 6), (128, 128)])
def test_rope(table: str, dim: int, rotary: int, rng: np.random.Generator) -> None:
    x = rng.standard_normal((7, 3, dim), dtype=np.float32)
    angles = rng.uniform(-50, 50, (7, rotary // 2))
    cos_sin = np.concatenate([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    wide = x.astype(float)
    pairs = wide[..., : rotary // 2] + 1j * wide[..., rotary // 2 : rotary]
    turned = pairs * np.exp(1j * angles)[:, None, :]
    expected = np.concatenate([turned.real, turned.imag, wide[..., rotary:]], axis=2)
    np.testing.assert_allclose(kernels.rope(table, x, cos_sin), expected, rtol=0, atol=2e-6)


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
    bits = rng.integers(0, 2**32, 200_003, dtype=np.uint32)
    spread = rng.standard_normal(200_000) * 10.0 ** rng.uniform(-9, 6, 200_000)
    halves = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32)
    ties = (halves[1:] + halves[:-1]) / 2
    edges = [65504, 65519.996, 65520, 65536, 2.0**-24, 2.0**-25, np.nextafter(2.0**-25, 1)]
    with np.errstate(all="ignore"):
        x = np.concatenate([bits.view(np.float32), spread, ties, -ties, edges]).astype(np.float32)
        expected = x.astype(np.float16)
    np.testing.assert_array_equal(kernels.float_to_half(table, x).view(np.float16), expected)
