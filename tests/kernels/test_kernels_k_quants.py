"""Weights of 5 and 6 bits and K-quants, in every table, against float64 and gguf's own numbers."""

from __future__ import annotations

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf.quants import dequantize

from kernels.kernel_cases import (
    K_ENCODINGS,
    K_SHAPES,
    LONG_ROW_COUNTS,
    ROW_COUNTS,
    Array,
    kept_weight,
    linear_tolerance,
    rounded_rows,
)
from satchel._native import kernels
from satchel.checkpoints.gguf_codes import OWN_ENCODINGS
from satchel.encodings.packing import pack_quantized
from satchel.quantize.superblocks import SuperblockWeight


def assert_close(actual: Array, expected: Array) -> None:
    linear_tolerance(expected).check(actual, expected)


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("shape", K_SHAPES)
@pytest.mark.parametrize("encoding", K_ENCODINGS)
def test_linear(
    table: str, encoding: str, shape: tuple[int, int], bits: int, rng: np.random.Generator
) -> None:
    rows, cols = shape
    group = K_ENCODINGS[encoding]
    packed, weights = kept_weight(rng, encoding, rows, cols)
    bias = rng.standard_normal(rows, dtype=np.float32) if bits == 8 else None
    for m in (*ROW_COUNTS, *LONG_ROW_COUNTS):
        x = rng.standard_normal((m, cols), dtype=np.float32)
        y = kernels.linear(table, x, *packed, encoding, rows, group, bias, bits=bits)
        expected = rounded_rows(x, bits) @ weights.T
        assert_close(y, expected if bias is None else expected + bias)


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("encoding", K_ENCODINGS)
def test_a_row_alone_and_among_others(
    table: str, encoding: str, bits: int, rng: np.random.Generator
) -> None:
    """It has the same bits in a short block, and in any range of tiles."""
    rows, cols, group = 130, 768, K_ENCODINGS[encoding]
    packed, _ = kept_weight(rng, encoding, rows, cols)
    x = rng.standard_normal((63, cols), dtype=np.float32)
    block = kernels.linear(table, x, *packed, encoding, rows, group, bits=bits)
    for m in (1, 2, 3, 4, 5, 7, 31):
        for first in (0, 63 - m):
            part = x[first : first + m]
            fewer = kernels.linear(table, part, *packed, encoding, rows, group, bits=bits)
            np.testing.assert_array_equal(fewer, block[first : first + m])
    for begin, end in ((0, 3), (3, 4), (4, 9)):
        part = kernels.linear(
            table, x[:2], *packed, encoding, rows, group, None, begin, end, bits=bits
        )
        inside = slice(begin * 16, min(end * 16, rows))
        np.testing.assert_array_equal(part[:, inside], block[:2, inside])


@pytest.mark.parametrize("encoding", K_ENCODINGS)
def test_unpack_row(table: str, encoding: str, rng: np.random.Generator) -> None:
    packed, weights = kept_weight(rng, encoding, 37, 512)
    for row in (0, 15, 16, 36):
        got = kernels.unpack_row(table, *packed, encoding, 37, 512, K_ENCODINGS[encoding], row)
        np.testing.assert_allclose(got, weights[row], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("kind", ["q5_0", "q4_k", "q5_k", "q6_k"])
def test_largest_products(table: str, kind: str, bits: int) -> None:
    """All bits of blocks set or none, so that codes and scales are the largest there are."""
    number = GGMLQuantizationType[kind.upper()]
    encoding, split = OWN_ENCODINGS[kind]
    size = {"q5_0": 22 * 16, "q4_k": 144 * 2, "q5_k": 176 * 2, "q6_k": 210 * 2}[kind]
    raw = np.zeros((32, size), np.uint8)
    raw[1::2] = 255
    step = np.frombuffer(np.float16(0.01).tobytes(), np.uint8)
    blocks = raw.reshape(32, -1, size // (16 if kind == "q5_0" else 2))
    places = {"q5_0": [0], "q6_k": [208]}.get(kind, [0, 2])
    for at in places:
        blocks[:, :, at : at + 2] = step
    packed = pack_quantized(encoding.layout, split(raw))
    weights = dequantize(raw, number).astype(float)
    x = np.full((7, 512), 127, np.float32)
    x[1::2] = -127
    x[4, ::2] = -127
    y = kernels.linear(table, x, *packed, encoding.layout, 32, encoding.group, bits=bits)
    assert_close(y, rounded_rows(x, bits) @ weights.T)


def test_signed_multiples(table: str, rng: np.random.Generator) -> None:
    """Scales of q6_k below zero, and steps of each super-block that are far apart."""
    rows, cols = 20, 1024
    weight = SuperblockWeight(
        rng.integers(-32, 32, (rows, cols)).astype(np.int8),
        rng.integers(-128, 128, (rows, cols // 16)).astype(np.int8),
        (10.0 ** rng.uniform(-6, 1, (rows, 4))).astype(np.float16),
    )
    packed = pack_quantized("q6_k", weight)
    x = rng.standard_normal((9, cols), dtype=np.float32)
    y = kernels.linear(table, x, *packed, "q6_k", rows, 16)
    assert_close(y, rounded_rows(x, 8) @ weight.floats().astype(float).T)


def test_nothing_is_rounded_to_them() -> None:
    for encoding, group in K_ENCODINGS.items():
        with pytest.raises(ValueError, match="nothing is rounded"):
            kernels.pack(np.zeros((16, 256), np.float32), encoding, group)


@pytest.mark.parametrize(
    ("encoding", "cols", "group"),
    [("q6_k", 256, 32), ("q4_k", 256, 64), ("q5_k", 128, 32), ("q5", 64, 16)],
)
def test_groups_that_do_not_fit(encoding: str, cols: int, group: int) -> None:
    codes, scales = np.zeros(16, np.uint8), np.zeros(16, np.uint16)
    x = np.zeros((1, cols), np.float32)
    with pytest.raises(ValueError, match="group"):
        kernels.linear("portable", x, codes, scales, encoding, 16, group)
