"""16-bit floats in place of codes: graphs that compute in them have no ranges to measure."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.errors import RecipeError
from satchel.quantize.static import ActivationEncoding

Array = NDArray[Any]

FLOATS = 0  # in place of the bits of activations
LARGEST, SMALLEST = 65504.0, 2.0**-24  # of these floats, but for zero
_HIDDEN = -30000.0  # what a mask adds to scores that are not seen; no sum with a score is endless


class HalfEncoding(ActivationEncoding):
    """Numbers are their own codes, rounded to 16-bit floats."""

    def __post_init__(self) -> None:
        if (self.scale, self.zero_point, self.bits) != (1.0, 0, FLOATS):
            raise RecipeError("16-bit floats have no steps")

    @property
    def lowest(self) -> int:
        """What a mask gives to a slot that is not seen."""
        return int(_HIDDEN)

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.float16)

    def quantize(self, x: Array) -> Array:
        numbers = np.nan_to_num(np.asarray(x, np.float32), nan=0.0, posinf=LARGEST, neginf=-LARGEST)
        limited: Array = np.clip(numbers, -LARGEST, LARGEST).astype(np.float16)
        return limited

    def dequantize(self, codes: Array) -> Array:
        numbers: Array = codes.astype(np.float32)
        return numbers


HALVES = HalfEncoding(1.0, 0, FLOATS)


def make_encoding(low: float, high: float, bits: int) -> ActivationEncoding:
    """Codes of so many bits that span a range, or 16-bit floats.

    >>> make_encoding(0.0, 1.0, FLOATS).quantize(np.array([0.1])).tolist()
    [0.0999755859375]
    """
    return HALVES if bits == FLOATS else ActivationEncoding.of_range(low, high, bits)


def read_encoding(scale: float, zero_point: int, bits: int) -> ActivationEncoding:
    """As a manifest tells it."""
    made = HalfEncoding if bits == FLOATS else ActivationEncoding
    return made(scale, zero_point, bits)


def check_range(name: str, low: float, high: float) -> None:
    """RecipeError if these floats do not reach what was seen, or know nothing but zero of it."""
    most = max(-low, high)
    if SMALLEST <= most <= LARGEST or most == 0:
        return
    limit = f"end at {LARGEST:.0f}" if most > LARGEST else f"begin at {SMALLEST:.1g}"
    raise RecipeError(
        f"{name} reaches {most:.3g} with the calibration data, and 16-bit floats {limit}",
        "Use a recipe of whole numbers (16a8w, 16a4w, int8), whose codes span any range.",
    )
