"""Better rounding against plain rounding and against the textbook's slow form of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from satchel.encodings.encoding import Encoding
from satchel.encodings.packing import pack_matrix, unpack_matrix
from satchel.errors import RecipeError
from satchel.quantize.moments import InputMoments, MomentsSum
from satchel.quantize.rounding import ROUNDINGS, Rounder, check_rounding
from satchel.quantize.rounding.gptq import ErrorFeedback
from satchel.quantize.rounding.search import search_scales
from support.arrays import normal

Array = NDArray[Any]
ENCODINGS = [
    Encoding("matrix_q4", 32),
    Encoding("matrix_q8", 64),
    Encoding("matrix_q8", 128),
    Encoding("matrix_lpbq4", 16),
]
COLS = 128


def correlated_inputs(tokens: int = 400) -> Array:
    """Inputs as layers see them: channels that go together, and some much stronger than others."""
    mixed = normal(tokens, COLS, seed="x") @ normal(COLS, COLS, seed="mix", scale=0.3)
    return (mixed * np.exp(normal(COLS, seed="gain"))).astype(np.float32)


def moments_of(x: Array) -> InputMoments:
    total = MomentsSum(x.shape[1])
    total.add(x, np.ones(len(x)))
    return total.finish()


def stored(name: str, w: Array, encoding: Encoding, moments: InputMoments | None) -> Array:
    return Rounder(name, lambda _: moments).round("w", "linear", w, encoding).floats()


@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
def test_each_way_gives_a_smaller_error_of_the_output(encoding: Encoding) -> None:
    x, w = correlated_inputs(), normal(48, COLS, seed="w")
    moments = moments_of(x)
    plain = unpack_matrix(
        encoding.layout, *pack_matrix(encoding.layout, w, encoding.group), 48, COLS, encoding.group
    )
    search, gptq = (stored(name, w, encoding, moments) for name in ("search", "gptq"))
    errors = [float(((x @ (w - other).T) ** 2).sum()) for other in (plain, search, gptq)]
    assert errors[0] >= errors[1] > errors[2]
    assert errors[2] < 0.6 * errors[0]


@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
def test_what_is_packed_is_what_was_rounded(encoding: Encoding) -> None:
    w = normal(40, COLS, seed="w")
    rounder = Rounder("gptq", lambda _: moments_of(correlated_inputs()), threads=3)
    rounded = rounder.round("w", "linear", w, encoding)
    unpacked = unpack_matrix(encoding.layout, *rounded.packed(), 40, COLS, encoding.group)
    np.testing.assert_array_equal(unpacked, rounded.floats())
    alone = stored("gptq", w, encoding, moments_of(correlated_inputs()))
    np.testing.assert_array_equal(rounded.floats(), alone)  # threads change nothing


def test_no_run_is_worse_than_with_the_plain_scales() -> None:
    w, power = normal(64, COLS, seed="w"), np.exp(2 * normal(COLS, seed="power"))
    codes, plain = (a.astype(np.float32) for a in _plain(w))
    found = search_scales(w, 4, 32, power).astype(np.float32)
    groups, weights = w.reshape(64, -1, 32), power.reshape(-1, 32)
    codes = codes.reshape(groups.shape)
    ours = np.clip(np.rint(groups / found[..., None]), -8, 7)
    before = (((codes * plain[..., None] - groups) ** 2) * weights).sum(axis=(1, 2))
    after = (((ours * found[..., None] - groups) ** 2) * weights).sum(axis=(1, 2))
    assert (after <= before * (1 + 1e-5)).all()
    assert after.sum() < 0.8 * before.sum()


def _plain(w: Array) -> tuple[Array, Array]:
    from satchel.encodings.packing import quantize_groups

    return quantize_groups(w, 4, 32)


def test_a_weight_that_lies_on_a_grid_is_found() -> None:
    scales = np.array([[0.25, -0.5]], np.float16)
    codes = np.tile(np.arange(-7, 8), 5)[:64].reshape(1, 64)  # -8 is not among them
    w = (codes.reshape(1, 2, 32) * scales.astype(np.float32)[..., None]).reshape(1, 64)
    kept = stored("search", w, Encoding("matrix_q4", 32), None)
    np.testing.assert_allclose(kept, w, rtol=2e-3)


def test_error_feedback_is_optimal_brain_quantisation() -> None:
    """Against its definition: after each column, the rest takes its best values anew."""
    x, w = correlated_inputs(), normal(6, COLS, seed="w")
    second, scales = moments_of(x).second, np.full((6, 1), 0.25, np.float32)
    codes = ErrorFeedback(second, damping=0.05).round(w, scales, 4)
    hessian = second.astype(np.float64)
    hessian += np.eye(COLS) * 0.05 * np.diagonal(hessian).mean()
    rest, left = list(np.argsort(-np.diagonal(second), kind="stable")), w.astype(np.float64)
    for _ in range(24):  # the first columns: after those, ties may fall either way
        now, *rest = rest
        code = np.clip(np.rint(left[:, now] / 0.25), -8, 7)
        np.testing.assert_array_equal(codes[:, now], code)
        error = left[:, now] - code * 0.25
        # min over d of (e, d) H (e, d)ᵀ
        left[:, rest] += np.outer(
            error, np.linalg.solve(hessian[np.ix_(rest, rest)], hessian[rest, now])
        )


def test_zeros_stay_zeros_and_dead_inputs_do_no_harm() -> None:
    x = correlated_inputs()
    x[:, :40] = 0
    w = normal(20, COLS, seed="w")
    w[3] = 0
    for encoding in ENCODINGS:
        for name in ("search", "gptq"):
            kept = stored(name, w, encoding, moments_of(x))
            assert np.isfinite(kept).all()
            assert (kept[3] == 0).all()


def test_the_default_and_what_is_refused() -> None:
    assert check_rounding(None, calibrated=False) == "plain"
    assert [check_rounding(name, calibrated=True) for name in ROUNDINGS] == list(ROUNDINGS)
    assert check_rounding("search", calibrated=False) == "search"
    with pytest.raises(RecipeError, match="needs to know what the layers see"):
        check_rounding("gptq", calibrated=False)
    with pytest.raises(RecipeError, match="no rounding 'awq'"):
        check_rounding("awq", calibrated=True)
