"""Rounding that makes up for its own errors, in the manner of GPTQ.

Columns are rounded one after the other; what one loses is made up for by those that are still to
be rounded, as far as their inputs go together. Scales are fixed before, so the columns may be taken
in any order: those with the strongest inputs first, while most others can still make up for them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.quantize.rounding.search import LIMITS

Array = NDArray[Any]

# Added to the diagonal, as a part of its mean: keeps weights from wandering off along inputs that
# the calibration text hardly has.
DAMPING = 0.05
_BLOCK = 128  # columns whose errors are passed on together


class ErrorFeedback:
    """How errors of one column are made up for by others, from the input's second moments."""

    def __init__(self, second: Array, damping: float = DAMPING) -> None:
        wide = second.astype(np.float64)
        power = np.diagonal(wide)
        mean = float(power.mean()) or 1.0
        wide = wide + np.eye(len(wide)) * (damping * mean)
        self.order = np.argsort(-power, kind="stable")
        ordered = wide[np.ix_(self.order, self.order)]
        # Of the inverse's upper triangular factor, row j tells how column j's error is spread.
        self.upper = np.linalg.cholesky(np.linalg.inv(ordered)).T.astype(np.float32)

    def round(self, w: Array, scales: Array, bits: int) -> Array:
        """Codes (int8) of ``[rows, cols]``; ``scales`` are those of equally many columns each.

        >>> ErrorFeedback(np.eye(2)).round(np.array([[0.4, 0.6]]), np.array([[1.0]]), 4).tolist()
        [[0, 1]]
        """
        rows, cols = w.shape
        lowest, highest = LIMITS[bits]
        group = cols // scales.shape[1]
        # One row per column, so that each step reads and writes memory in a row.
        left = np.ascontiguousarray(w.T[self.order], np.float32)
        steps = np.ascontiguousarray(scales.T.astype(np.float32)[self.order // group])
        with np.errstate(divide="ignore"):
            inverse = np.where(steps == 0, np.float32(0), 1 / steps)
        codes = np.empty((cols, rows), np.int8)
        for first in range(0, cols, _BLOCK):
            last = min(first + _BLOCK, cols)
            errors = np.empty((last - first, rows), np.float32)
            for at in range(first, last):
                code = np.clip(np.rint(left[at] * inverse[at]), lowest, highest)
                codes[at] = code
                error = (left[at] - code * steps[at]) / self.upper[at, at]
                errors[at - first] = error
                left[at + 1 : last] -= self.upper[at, at + 1 : last, None] * error
            left[last:] -= self.upper[first:last, last:].T @ errors
        unordered = np.empty_like(codes)
        unordered[self.order] = codes
        return np.ascontiguousarray(unordered.T)
