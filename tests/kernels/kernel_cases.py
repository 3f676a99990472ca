"""Inputs, expected results and tolerances of the kernels, for every way of running them.

The tests beside this file call the kernels of this machine; ``tests/arm`` writes the same cases to
a file for a program that runs on an emulated CPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from satchel.encodings import packing
from satchel.encodings.tiles import group_rows

Array = NDArray[Any]


@dataclass(frozen=True)
class Tolerance:
    """How far a kernel may be from float64: |actual - expected| <= atol + rtol * |expected|."""

    rtol: float
    atol: float

    def check(self, actual: Array, expected: Array) -> None:
        np.testing.assert_allclose(actual, expected, rtol=self.rtol, atol=self.atol)


EXACT = Tolerance(0, 0)
ATTENTION = Tolerance(0, 1e-5)
RMS_NORM = Tolerance(2e-6, 1e-7)
LAYER_NORM = Tolerance(1e-5, 1e-5)
SILU = Tolerance(2e-6, 1e-12)
GELU = Tolerance(5e-6, 1e-9)
EXPONENTIAL = Tolerance(1e-6, 0)
EXTREMES = Tolerance(1e-6, 1e-7)
ROPE = Tolerance(0, 2e-6)


def linear_tolerance(expected: Array) -> Tolerance:
    """Relative to the largest output: small ones are differences of large products."""
    return Tolerance(0, 1e-5 * float(np.abs(expected).max()))


ROW_COUNTS = (1, 2, 3, 5, 8, 17, 33)
# Blocks that some tables have a kernel of their own for.
LONG_ROW_COUNTS = (64, 79, 130)
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
FLOAT_SHAPES = [(16, 32), (33, 77), (100, 130)]
QUANTIZE_SHAPES = [(32, 32), (80, 40), (100, 4), (576, 64), (700, 700)]  # columns, group
SIZES = [1, 3, 16, 33, 100, 576]
ROPE_SHAPES = [(64, 64), (80, 32), (12, 6), (128, 128)]  # head size, rotary part
HEAD_SIZES = [8, 20, 64, 80, 96, 128, 256]
HEAD_GROUPS = [1, 3, 4, 8]
PLACES = [(1, 0), (1, 63), (1, 150), (5, 0), (3, 62), (37, 100), (70, 30)]  # queries, position
WINDOWS = [1, 7, 64, 100, 1000]
WINDOW_PLACES = [(1, 0), (1, 200), (40, 0), (70, 90)]
SOFTCAPS = [0.5, 5.0, 50.0]


def expected_quantized(x: Array, codes: Array, scales: Array, bias: Array | None) -> Array:
    """Exact integer sums per group, then float64."""
    x_codes, x_scales = packing.quantize_activations(x)
    groups = scales.shape[1]
    xs = x_codes.reshape(len(x), groups, -1).astype(np.int64)
    ws = codes.reshape(len(codes), groups, -1).astype(np.int64)
    dots = np.einsum("mgk,ngk->mng", xs, ws)
    y: Array = (dots * scales.astype(np.float64)).sum(axis=2) * x_scales[:, None].astype(float)
    return y if bias is None else y + bias


def codes_from_zero(codes: Array) -> Array:
    """The codes of q4_min in the bytes of a q4: 0 to 15, not -8 to 7."""
    return codes + np.int8(8)


# By layout: the columns of a group. Rows and columns of their matrices.
K_ENCODINGS = {"q5": 32, "q5_min": 32, "q4_k": 32, "q5_k": 32, "q6_k": 16}
K_SHAPES = [(16, 256), (40, 512), (130, 1280)]


def kept_weight(
    rng: np.random.Generator, encoding: str, rows: int, cols: int
) -> tuple[tuple[Array, Array], Array]:
    """A random matrix of one of these encodings, packed, and as a kernel sees it, in float64.

    The minima of q5_min are not a kernel's.
    """
    group = K_ENCODINGS[encoding]
    w = rng.standard_normal((rows, cols), dtype=np.float32)
    codes, scales = packing.pack_matrix(encoding, w, group)
    weights = packing.unpack_matrix(encoding, codes, scales, rows, cols, group).astype(float)
    if encoding == "q5_min":
        plane, minima = packing.split_planes(encoding, scales, rows, cols, group)
        added = group_rows(minima.view(np.float16), cols // group)[:rows].astype(float)
        weights -= np.repeat(added, group, axis=1)
        scales = plane.view(np.uint16)
    return (codes, scales), weights


def rounded_rows(x: Array, bits: int) -> Array:
    """Activations as a kernel of so many bits sees them, in float64."""
    codes, scales = packing.quantize_activations(x, bits)
    rows: Array = codes.astype(float) * scales[:, None].astype(float)
    return rows


# AMX brings the scales of 1024 columns of a row to one step for long blocks: see amx_whole.cpp.
WHOLE_COLUMNS = 1024
WHOLE_LARGEST_GROUP = 128


def whole_steps(scales: Array, group: int) -> Array:
    """Scales as AMX uses them for long blocks: whole numbers of steps, at most 4095."""
    if group > WHOLE_LARGEST_GROUP or WHOLE_COLUMNS % group != 0:
        return scales
    rounded = scales.astype(np.float64)
    for first in range(0, scales.shape[1], WHOLE_COLUMNS // group):
        chunk = rounded[:, first : first + WHOLE_COLUMNS // group]
        largest = np.abs(chunk).max(axis=1, keepdims=True)
        step = np.exp2(np.floor(np.log2(np.maximum(largest, 2.0**-24))) - 11)
        chunk[:] = np.rint(chunk / step) * step
    return rounded


def largest_products(encoding: str, group: int) -> tuple[Array, Array]:
    """Activations and weights whose codes are the largest there are."""
    lowest, highest = (-8, 7) if encoding == "q4" else (-127, 127)
    w = np.full((32, 512), lowest, np.float32)
    w[1::2] = highest
    w[:, 0::group] = lowest if encoding == "q4" else highest  # keeps each group's scale at 1
    x = np.full((13, 512), 127, np.float32)
    x[1::2] = -127
    x[4, ::2] = -127
    return x, w


def rows_to_quantize(rng: np.random.Generator, cols: int) -> Array:
    """Rows of many magnitudes: zeros, too small to have a scale, and with an outlier."""
    x = rng.standard_normal((6, cols), dtype=np.float32) * 10.0 ** rng.integers(-6, 6, (6, 1))
    x = x.astype(np.float32)
    x[1] = 0
    x[2, :] = 1e-40
    x[3, 0] = np.abs(x[3]).max() * 4
    return x


def expected_attention(
    q: Array, k: Array, v: Array, position: int, *, window: int, softcap: float, scale: float
) -> Array:
    """A plain softmax in float64; keys past the last position are not looked at."""
    queries, heads, _ = q.shape
    seen = position + queries
    k = np.repeat(k[:, :seen].astype(float), heads // k.shape[0], axis=0)
    v = np.repeat(v[:, :seen].astype(float), heads // v.shape[0], axis=0)
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


def make_attention(
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


def _double(a: Array) -> torch.Tensor:
    return torch.from_numpy(a).double()


def expected_rms_norm(x: Array, w: Array, eps: float) -> Array:
    return functional.rms_norm(_double(x), [len(w)], _double(w), eps).numpy()


def expected_layer_norm(x: Array, w: Array, bias: Array | None, eps: float) -> Array:
    b = None if bias is None else _double(bias)
    return functional.layer_norm(_double(x), [len(w)], _double(w), b, eps).numpy()


def expected_silu_mul(gate: Array, up: Array) -> Array:
    return (functional.silu(_double(gate)) * _double(up)).numpy()


def expected_gelu_mul(gate: Array, up: Array) -> Array:
    return (functional.gelu(_double(gate), approximate="tanh") * _double(up)).numpy()


def exponential_inputs(count: int) -> tuple[Array, Array]:
    """silu(x) / x = 1 / (1 + exp(-x)) shows the vector exponential over its whole range."""
    x = np.linspace(-85, 85, count, dtype=np.float32)
    x = x[x != 0]
    wide = x.astype(float)
    return x, wide / (1 + np.exp(-wide))


ACTIVATION_EXTREMES = np.array([-1e30, -200, -89, 0, 89, 200, 1e30, np.nan], np.float32)
EXPECTED_EXTREMES = np.array([0, 0, 0, 0, 89, 200, 1e30, np.nan])


def make_rope(rng: np.random.Generator, dim: int, rotary: int) -> tuple[Array, Array, Array]:
    """Heads, cosines and sines, and the heads turned as complex numbers."""
    x = rng.standard_normal((7, 3, dim), dtype=np.float32)
    angles = rng.uniform(-50, 50, (7, rotary // 2))
    cos_sin = np.concatenate([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    wide = x.astype(float)
    pairs = wide[..., : rotary // 2] + 1j * wide[..., rotary // 2 : rotary]
    turned = pairs * np.exp(1j * angles)[:, None, :]
    return x, cos_sin, np.concatenate([turned.real, turned.imag, wide[..., rotary:]], axis=2)


def floats_to_round(rng: np.random.Generator, count: int) -> tuple[Array, Array]:
    """Floats of every kind, also exactly between two halves, and what numpy rounds them to."""
    bits = rng.integers(0, 2**32, count + 3, dtype=np.uint32)
    spread = rng.standard_normal(count) * 10.0 ** rng.uniform(-9, 6, count)
    halves = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32)
    ties = (halves[1:] + halves[:-1]) / 2
    edges = [65504, 65519.996, 65520, 65536, 2.0**-24, 2.0**-25, np.nextafter(2.0**-25, 1)]
    with np.errstate(all="ignore"):
        x = np.concatenate([bits.view(np.float32), spread, ties, -ties, edges]).astype(np.float32)
        return x, x.astype(np.float16)
