"""Perplexity: e to the mean negative log likelihood of a text's tokens."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from satchel.errors import EvaluationError
from satchel.eval.likelihood import score_tokens
from satchel.eval.record import Record
from satchel.eval.windows import Window
from satchel.llm.session import Session

Told = Callable[[int, int], None]  # tokens done, tokens in all


@dataclass(frozen=True)
class Perplexity:
    """``nll`` is the mean negative log likelihood of the counted tokens, in nats."""

    nll: float
    tokens: int
    seconds: float
    resumed_windows: int = 0
    by_window: tuple[tuple[float, int], ...] = ()  # negative log likelihood, tokens

    @property
    def ppl(self) -> float:
        return math.exp(self.nll)

    def to_dict(self) -> dict[str, Any]:
        return {
            "ppl": self.ppl,
            "nll": self.nll,
            "tokens": self.tokens,
            "seconds": self.seconds,
            "resumed_windows": self.resumed_windows,
        }


def score_window(session: Session, window: Window) -> float:
    """The negative log likelihood of a window's counted tokens, summed."""
    session.rewind(0)
    total, _ = score_tokens(session, window.tokens, window.first)
    return -total


def measure_perplexity(
    session: Session,
    windows: Sequence[Window],
    record: Record,
    told: Told = lambda _done, _total: None,
) -> Perplexity:
    """Score every window that the record does not have yet."""
    done = [0, *accumulate(w.counted for w in windows)]
    if done[-1] < 1:
        raise EvaluationError("there is no token to predict", "Use a longer text.")
    entries = record.complete(
        windows,
        lambda window: [score_window(session, window), window.counted],
        lambda count: told(done[count], done[-1]),
    )
    nll = math.fsum(entry[0] for entry in entries) / done[-1]
    by_window = tuple((float(total), int(count)) for total, count in entries)
    return Perplexity(nll, done[-1], record.seconds, record.resumed, by_window)


def compare(one: Perplexity, other: Perplexity) -> dict[str, float | None]:
    """How much higher one's perplexity is than the other's on the same windows, relatively.

    ``stderr`` tells how much of that is chance, from how the difference varies by window; it is
    None for a single window.
    """
    pairs = list(zip(one.by_window, other.by_window, strict=True))
    mean = one.nll - other.nll
    stderr = None
    if len(pairs) > 1:
        rest = [mine - theirs - count * mean for (mine, count), (theirs, _) in pairs]
        spread = math.fsum(r * r for r in rest) * len(pairs) / (len(pairs) - 1)
        stderr = math.sqrt(spread) / one.tokens
    return {"difference": math.expm1(mean), "stderr": stderr}
