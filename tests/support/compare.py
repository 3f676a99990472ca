"""One way to compare arrays, so that a tolerance means the same everywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def assert_close(got: NDArray[Any], want: NDArray[Any], tolerance: float, what: str = "") -> None:
    """The same shape and special values; the rest within tolerance × the largest magnitude.

    A tolerance of 0 asks for the same values exactly.
    """
    assert got.shape == want.shape, f"{what}: shape {got.shape}, not {want.shape}"
    if tolerance == 0 or want.dtype.kind not in "fc":
        np.testing.assert_array_equal(got, want, err_msg=what)
        return
    finite = np.isfinite(want)
    np.testing.assert_array_equal(got[~finite], want[~finite], err_msg=what)
    if finite.any():
        wanted = want[finite].astype(np.float64)
        allowed = tolerance * max(float(np.abs(wanted).max()), 1e-12)
        difference = float(np.abs(got[finite].astype(np.float64) - wanted).max())
        assert difference <= allowed, f"{what}: off by {difference:.3g}, allowed {allowed:.3g}"


def relative_difference(got: NDArray[Any], want: NDArray[Any]) -> float:
    """Largest difference over largest magnitude."""
    return float(np.abs(got - want).max() / np.abs(want).max())
