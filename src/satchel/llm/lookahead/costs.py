"""What steps cost on this machine, and whether guessing pays."""

from __future__ import annotations

import statistics
from collections import deque

_SAMPLES = 5
_FREE_ROWS = 8  # until more is known: so many more rows are thought to double a step's time


class StepCosts:
    """Seconds of a step by how many tokens it computed: medians of the latest measurements.

    >>> costs = StepCosts()
    >>> costs.record(1, 0.010)
    >>> costs.record(5, 0.014)
    >>> round(costs.seconds(3), 3)
    0.012
    """

    def __init__(self) -> None:
        self._samples: dict[int, deque[float]] = {}

    def record(self, rows: int, seconds: float) -> None:
        self._samples.setdefault(rows, deque(maxlen=_SAMPLES)).append(seconds)

    def measured(self, rows: int) -> float | None:
        """The median of what was measured for just so many tokens."""
        samples = self._samples.get(rows)
        return statistics.median(samples) if samples else None

    def seconds(self, rows: int) -> float:
        """Measured, or between its neighbours; above all of them in proportion."""
        exact = self.measured(rows)
        if exact is not None:
            return exact
        below = max((n for n in self._samples if n < rows), default=None)
        above = min((n for n in self._samples if n > rows), default=None)
        if below is None:
            return self.seconds(above) if above else 0.0
        low = statistics.median(self._samples[below])
        if above is None:
            return low * (1 + (rows - 1) / _FREE_ROWS if below == 1 else rows / below)
        high = statistics.median(self._samples[above])
        return low + (high - low) * (rows - below) / (above - below)


class Chance:
    """An estimate that follows what happens, and goes back to its first value when nothing does,
    so that what was given up is tried again."""

    def __init__(self, start: float, follow: float, forget: float) -> None:
        self.value = self._start = start
        self._follow, self._forget = follow, forget

    def happened(self, value: float) -> None:
        self.value += self._follow * (value - self.value)

    def declined(self) -> None:
        self.value += self._forget * (self._start - self.value)


def expected_tokens(chance: float, guesses: int) -> float:
    """Tokens that a step gives if each guess is right with this chance and the first wrong one
    ends it.

    >>> expected_tokens(0.5, 2)
    1.75
    """
    return sum(chance**i for i in range(guesses + 1))
