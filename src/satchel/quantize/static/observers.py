"""Observers watch a value over all examples and choose the range that its codes span."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.errors import RecipeError
from satchel.quantize.static.encoding import ActivationEncoding

Array = NDArray[Any]
BINS = 2048
MSE_STEPS = 48


class Observer(ABC):
    """Sees arrays with ``observe``; ``encoding`` is what it makes of them."""

    @abstractmethod
    def observe(self, values: Array) -> None: ...

    @abstractmethod
    def range(self, bits: int, signed: bool) -> tuple[float, float]: ...

    def encoding(
        self, bits: int = 8, signed: bool = False, symmetric: bool = False
    ) -> ActivationEncoding:
        low, high = self.range(bits, signed)
        return ActivationEncoding.of_range(low, high, bits, signed, symmetric)


class MinMax(Observer):
    """From the least to the largest number seen."""

    def __init__(self) -> None:
        self.low = self.high = 0.0

    def observe(self, values: Array) -> None:
        self.low = min(self.low, float(values.min()))
        self.high = max(self.high, float(values.max()))

    def range(self, bits: int, signed: bool) -> tuple[float, float]:
        return self.low, self.high


class _Histogram(Observer):
    """Counts in bins over a range that doubles when a number falls outside of it."""

    def __init__(self) -> None:
        self.counts = np.zeros(BINS, np.float64)
        self.extent = 0.0  # the bins span -extent … extent
        self.limits = MinMax()

    def observe(self, values: Array) -> None:
        self.limits.observe(values)
        most = max(-self.limits.low, self.limits.high)
        if most == 0:
            return
        if self.extent == 0:
            self.extent = most
        while self.extent < most:  # two bins become one, in the middle of the new range
            merged = self.counts.reshape(-1, 2).sum(axis=1)
            self.counts = np.pad(merged, BINS // 4)
            self.extent *= 2
        span = (-self.extent, self.extent)
        self.counts += np.histogram(values, BINS, span)[0]

    @property
    def centres(self) -> Array:
        width = 2 * self.extent / BINS
        return (np.arange(BINS) + 0.5) * width - self.extent


class Percentile(_Histogram):
    """Leaves out the outermost share of the numbers, half of it at each end."""

    def __init__(self, percent: float = 99.99) -> None:
        super().__init__()
        self.percent = percent

    def range(self, bits: int, signed: bool) -> tuple[float, float]:
        total = self.counts.sum()
        if total == 0:
            return 0.0, 0.0
        left_out = (1 - self.percent / 100) / 2 * total
        edges = np.linspace(-self.extent, self.extent, BINS + 1)
        below = np.cumsum(self.counts)
        low = edges[int(np.searchsorted(below, left_out, "right"))]
        high = edges[int(np.searchsorted(below, total - left_out)) + 1]
        return max(float(low), self.limits.low), min(float(high), self.limits.high)


class MeanSquaredError(_Histogram):
    """The shrunken range whose rounding and cutting off together err least."""

    def range(self, bits: int, signed: bool) -> tuple[float, float]:
        low, high = self.limits.low, self.limits.high
        if self.extent == 0:
            return low, high
        best = (np.inf, low, high)
        for share in np.linspace(0.3, 1.0, MSE_STEPS)[::-1]:
            one = ActivationEncoding.of_range(low * share, high * share, bits, signed)
            error = self.centres - one.round_trip(self.centres)
            best = min(best, (float((error**2 * self.counts).sum()), low * share, high * share))
        return best[1], best[2]


OBSERVERS: dict[str, Callable[[], Observer]] = {
    "minmax": MinMax,
    "percentile": Percentile,
    "mse": MeanSquaredError,
}


def make_observer(name: str) -> Callable[[], Observer]:
    """``minmax``, ``percentile``, ``percentile:99.9`` or ``mse``.

    >>> make_observer("percentile:99.9")().percent
    99.9
    """
    kind, colon, number = name.partition(":")
    if kind not in OBSERVERS or (colon and kind != "percentile"):
        raise RecipeError(f"there is no observer {name!r}", f"Observers: {', '.join(OBSERVERS)}.")
    if not colon:
        return OBSERVERS[kind]
    try:
        percent = float(number)
    except ValueError:
        percent = 0.0
    if not 50 < percent <= 100:
        raise RecipeError(f"{number!r} is not a percentile", "Write for example percentile:99.9.")
    return partial(Percentile, percent)
