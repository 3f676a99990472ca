"""What is known of a layer's input over a text."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True)
class InputMoments:
    """Over the tokens that a linear layer saw: ``second`` is the mean of x xᵀ, in float32.

    ``largest`` and ``mean`` are the largest magnitude and the mean of every channel.
    """

    second: Array  # [channels, channels]
    largest: Array  # [channels]
    mean: Array  # [channels]

    @property
    def power(self) -> Array:
        """The mean square of every channel."""
        diagonal: Array = np.diagonal(self.second)
        return diagonal

    def rotated(self, columns: Array) -> InputMoments:
        """Those of ``x @ columns``; of the largest magnitude only a bound is known."""
        wide = columns.astype(np.float64)
        second = wide.T @ self.second.astype(np.float64) @ wide
        largest = self.largest @ np.abs(columns)
        return InputMoments(second.astype(np.float32), largest, self.mean @ columns)


@dataclass
class MomentsSum:
    """Adds up what a layer sees, some tokens at a time."""

    channels: int
    weight: float = 0.0
    second: Array = field(init=False)
    largest: Array = field(init=False)
    total: Array = field(init=False)

    def __post_init__(self) -> None:
        self.second = np.zeros((self.channels, self.channels), np.float64)
        self.largest = np.zeros(self.channels, np.float32)
        self.total = np.zeros(self.channels, np.float64)

    def add(self, x: Array, weights: Array) -> None:
        """Rows ``x`` [tokens, channels], each of which counts ``weights`` times."""
        scaled = x * np.sqrt(weights, dtype=np.float32)[:, None]
        self.second += scaled.T @ scaled
        np.maximum(self.largest, np.abs(x).max(axis=0), out=self.largest)
        self.total += weights @ x.astype(np.float64)
        self.weight += float(weights.sum())

    def finish(self) -> InputMoments:
        second = (self.second / self.weight).astype(np.float32)
        return InputMoments(second, self.largest, (self.total / self.weight).astype(np.float32))
