"""How a value of a graph is rounded: a step, and the code that stands for zero."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.errors import RecipeError

Array = NDArray[Any]
SMALLEST_SCALE = 1e-12  # so that a value that is always zero has a scale to divide by


@dataclass(frozen=True)
class ActivationEncoding:
    """A number is ``(code - zero_point) * scale``; zero itself always has a code.

    >>> one = ActivationEncoding.of_range(-1.0, 3.0)
    >>> one.zero_point, one.quantize(np.array([0.0, 3.0, 9.0])).tolist()
    (64, [64, 255, 255])
    """

    scale: float
    zero_point: int
    bits: int = 8
    signed: bool = False

    def __post_init__(self) -> None:
        if self.bits not in (8, 16):
            raise RecipeError(f"activations have 8 or 16 bits, not {self.bits}")
        if not (np.isfinite(self.scale) and self.scale > 0):
            raise RecipeError(f"the scale {self.scale} is not a number above 0")
        if not self.lowest <= self.zero_point <= self.highest:
            raise RecipeError(f"the zero point {self.zero_point} is not a code")

    @staticmethod
    def of_range(
        low: float, high: float, bits: int = 8, signed: bool = False, symmetric: bool = False
    ) -> ActivationEncoding:
        """The encoding whose codes span the range, stretched so that it holds zero."""
        low, high = min(float(low), 0.0), max(float(high), 0.0)
        lowest, highest = _limits(bits, signed)
        if symmetric:
            most = max(-low, high)
            low, high = -most, most
        # The scale is a 32-bit float everywhere, so that all backends round alike.
        scale = float(np.float32(max((high - low) / (highest - lowest), SMALLEST_SCALE)))
        zero = (lowest + highest + 1) // 2 if symmetric else round(lowest - low / scale)
        return ActivationEncoding(scale, min(max(zero, lowest), highest), bits, signed)

    @property
    def lowest(self) -> int:
        return _limits(self.bits, self.signed)[0]

    @property
    def highest(self) -> int:
        return _limits(self.bits, self.signed)[1]

    @property
    def low(self) -> float:
        """The least number that has a code."""
        return (self.lowest - self.zero_point) * self.scale

    @property
    def high(self) -> float:
        return (self.highest - self.zero_point) * self.scale

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(f"{'' if self.signed else 'u'}int{self.bits}")

    def quantize(self, x: Array) -> Array:
        """Codes; halves go to the even one, and what is not a number becomes zero."""
        ratio = np.asarray(x, np.float32) * (np.float32(1) / np.float32(self.scale))
        codes = np.rint(np.nan_to_num(ratio, nan=0.0, posinf=3e38, neginf=-3e38)).astype(np.float64)
        limited: Array = np.clip(codes + self.zero_point, self.lowest, self.highest)
        return limited.astype(self.dtype)

    def dequantize(self, codes: Array) -> Array:
        centred = codes.astype(np.int32) - np.int32(self.zero_point)
        numbers: Array = centred.astype(np.float32) * np.float32(self.scale)
        return numbers

    def round_trip(self, x: Array) -> Array:
        """What is left of numbers after they were quantised."""
        return self.dequantize(self.quantize(x))

    def to_dict(self) -> dict[str, Any]:
        return {
            "scale": self.scale,
            "zero_point": self.zero_point,
            "bits": self.bits,
            "signed": self.signed,
        }


def _limits(bits: int, signed: bool) -> tuple[int, int]:
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
