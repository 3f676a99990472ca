"""The native packer gives the bytes of the numpy reference, which is compared with gguf."""

from __future__ import annotations

from typing import Any

import gguf
import numpy as np
import pytest
from gguf.quants import dequantize as gguf_dequantize
from gguf.quants import quantize as gguf_quantize
from numpy.typing import NDArray

from satchel._native import kernels
from satchel.encodings import packing
from satchel.errors import RecipeError

Array = NDArray[Any]


def awkward_weights(rng: np.random.Generator, rows: int, cols: int) -> Array:
    """Groups of very different sizes, with zeros, ties and scales below the smallest fp16."""
    w = rng.standard_normal((rows, cols)) * 10.0 ** rng.integers(-9, 4, (rows, 1))
    w[1] = 0
    w[2] = -0.0
    w[3] = np.where(np.arange(cols) % 2, 0.5, -0.5)
    w[4] = np.where(np.arange(cols) % 2, -0.5, 0.5)
    w[5] = np.round(w[5] * 4) / 4
    return w.astype(np.float32)


SHAPES = [(16, 32, 32), (37, 256, 64), (40, 520, 8), (33, 600, 600)]
STEP_SHAPES = [(16, 32, 32), (37, 1088, 64), (40, 2560, 32), (21, 1032, 8), (18, 3072, 1024)]


@pytest.mark.parametrize(
    ("encoding", "rows", "cols", "group"),
    [
        *((encoding, *shape) for encoding in ("f32", "f16", "q4", "q8") for shape in SHAPES),
        *(("q4_steps", *shape) for shape in STEP_SHAPES),
    ],
)
def test_same_bytes_as_the_reference(
    encoding: str, rows: int, cols: int, group: int, rng: np.random.Generator
) -> None:
    w = awkward_weights(rng, rows, cols)
    expected_codes, expected_scales = packing.pack_matrix(encoding, w, group)
    for threads in (1, 3):
        codes, scales, stats = kernels.pack(w, encoding, group, threads=threads)
        np.testing.assert_array_equal(codes, expected_codes)
        np.testing.assert_array_equal(scales, expected_scales)
        assert stats["first_bad"] == -1
    assert kernels.packed_sizes(encoding, rows, cols, group) == (codes.nbytes, scales.nbytes)
    assert packing.packed_sizes(encoding, rows, cols, group) == (codes.nbytes, scales.nbytes)
    meant = packing.unpack_matrix(encoding, codes, scales, rows, cols, group)
    wide = w.astype(float)
    np.testing.assert_allclose(stats["squared_weight"], (wide**2).sum(), rtol=1e-12)
    np.testing.assert_allclose(stats["squared_error"], ((wide - meant) ** 2).sum(), rtol=1e-12)


def test_blocks_of_rows_are_the_matrix(rng: np.random.Generator) -> None:
    w = awkward_weights(rng, 53, 128)
    whole = kernels.pack(w, "q4", 32)
    parts = [kernels.pack(block, "q4", 32) for block in (w[:16], w[16:48], w[48:])]
    for i in (0, 1):
        np.testing.assert_array_equal(np.concatenate([p[i] for p in parts]), whole[i])


def gguf_blocks(w: Array, kind: gguf.GGMLQuantizationType) -> tuple[Array, Array]:
    """Scales ``[rows, groups]`` and the bytes of codes of each block of 32."""
    blocks = gguf_quantize(w, kind).reshape(w.size // 32, -1)
    scales = np.ascontiguousarray(blocks[:, :2]).view(np.float16).reshape(len(w), -1)
    return scales, blocks[:, 2:]


def test_same_numbers_as_gguf_in_8_bits(rng: np.random.Generator) -> None:
    w = rng.standard_normal((32, 256), dtype=np.float32)
    their_scales, their_bytes = gguf_blocks(w, gguf.GGMLQuantizationType.Q8_0)
    codes, scales = packing.quantize_groups(w, 8, 32)
    np.testing.assert_array_equal(scales, their_scales)
    their_codes = their_bytes.view(np.int8).reshape(32, 256)
    assert np.abs(codes.astype(int) - their_codes).max() <= 1
    assert (codes != their_codes).mean() < 0.01


@pytest.mark.parametrize("cols", [256, 1024, 2080])
def test_more_exact_than_gguf_in_4_bits(cols: int, rng: np.random.Generator) -> None:
    """Although its scales are free, and ours are multiples of a step."""
    w, kind = rng.standard_normal((128, cols), dtype=np.float32), gguf.GGMLQuantizationType.Q4_0
    theirs = gguf_dequantize(gguf_quantize(w, kind), kind)
    ours = packing.dequantize_groups(*packing.quantize_groups(w, 4, 32))
    assert ((ours - w) ** 2).sum() < 0.98 * ((theirs - w) ** 2).sum()


def test_what_gguf_rounded_stays_as_it_is(rng: np.random.Generator) -> None:
    """Its scales are no multiples of a step, and are kept."""
    kind = gguf.GGMLQuantizationType.Q4_0
    w = gguf_dequantize(gguf_quantize(rng.standard_normal((64, 512), dtype=np.float32), kind), kind)
    again = packing.dequantize_groups(*packing.quantize_groups(w, 4, 32))
    np.testing.assert_allclose(again, w, rtol=1e-6)


def test_scales_are_multiples_of_a_step(rng: np.random.Generator) -> None:
    w = rng.standard_normal((64, 1024 + 96), dtype=np.float32)
    w[7, :32] *= 1e4  # one group dwarfs the others of its run
    scales = packing.quantize_groups(w, 4, 32)[1].astype(np.float64)
    for run in (scales[:, :32], scales[:, 32:]):
        largest = np.take_along_axis(run, np.abs(run).argmax(axis=1)[:, None], axis=1)
        multiples = run * 16 / largest
        whole = (multiples == np.rint(multiples)).all(axis=1)
        assert np.delete(whole, 7).all()
        assert multiples[whole].min() >= -15
        assert multiples[whole].max() == 16
        assert whole[7] == (run.shape[1] == 3)  # but not where one dwarfs the others


def test_largest_magnitude_is_exact() -> None:
    w = np.array([[0.5, -4.0, 3.5, 1.0, 0, 0, 0, 0], [0.5, 4.0, -3.5, 1.0, 0, 0, 0, 0]])
    codes, scales = packing.quantize_groups(w, 4, 8)
    assert codes[:, 1].tolist() == [-8, -8]
    assert scales[:, 0].tolist() == [0.5, -0.5]
    np.testing.assert_array_equal(packing.dequantize_groups(codes, scales), w)


@pytest.mark.parametrize("encoding", ["f32", "f16", "q4", "q8"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_the_first_bad_value_is_reported(encoding: str, bad: float) -> None:
    w = np.ones((40, 64), np.float32)
    w[17, 60] = bad
    w[33, 5] = bad
    for threads in (1, 2):
        assert kernels.pack(w, encoding, 32, threads=threads)[2]["first_bad"] == 17 * 64 + 60


@pytest.mark.parametrize(("encoding", "value"), [("f16", 7e4), ("q4", -6e5), ("q8", 9e6)])
def test_fp16_overflow_is_reported(encoding: str, value: float) -> None:
    w = np.ones((16, 64), np.float32)
    w[3, 40] = value
    assert kernels.pack(w, encoding, 32)[2]["first_bad"] == 3 * 64 + 40


@pytest.mark.parametrize(("encoding", "cols", "group"), [("q4", 64, 12), ("q8", 64, 48)])
def test_groups_that_do_not_fit(encoding: str, cols: int, group: int) -> None:
    with pytest.raises(RecipeError, match="does not fit"):
        packing.packed_sizes(encoding, 16, cols, group)
    with pytest.raises(ValueError, match="divide the columns"):
        kernels.packed_sizes(encoding, 16, cols, group)


def test_unknown_encoding() -> None:
    with pytest.raises(RecipeError, match="no matrix encoding 'q3'"):
        packing.packed_sizes("q3", 16, 32, 32)
    with pytest.raises(ValueError, match="f32, f16, q4, q8"):
        kernels.packed_sizes("q3", 16, 32, 32)


def test_unknown_bits() -> None:
    with pytest.raises(RecipeError, match="4, 5 or 8 bits, not 3"):
        packing.quantize_groups(np.zeros((1, 8)), 3, 8)
