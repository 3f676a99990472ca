"""How likely a program finds tokens, from its logits, in float64."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from satchel.errors import EvaluationError
from satchel.llm.session import Session

_ROWS_AT_ONCE = 16  # so that the float64 copies stay in the cache


def log_likelihoods(
    logits: NDArray[np.float32], targets: Sequence[int]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """ln p of each row's target, and whether it is the row's likeliest token.

    >>> found, likeliest = log_likelihoods(np.zeros((1, 4), np.float32), [2])
    >>> float(np.exp(found[0]))
    0.25
    """
    wanted = np.asarray(targets, np.int64)
    found = np.empty(len(wanted), np.float64)
    for start in range(0, len(wanted), _ROWS_AT_ONCE):
        rows = logits[start : start + _ROWS_AT_ONCE].astype(np.float64)
        rows -= rows.max(axis=1, keepdims=True)
        part = wanted[start : start + _ROWS_AT_ONCE]
        chosen = rows[np.arange(len(part)), part]
        found[start : start + len(part)] = chosen - np.log(np.exp(rows).sum(axis=1))
    return found, logits[: len(wanted)].argmax(axis=1) == wanted


def score_tokens(session: Session, tokens: Sequence[int], first: int) -> tuple[float, bool]:
    """ln p of the tokens from ``first`` on, each after those before it, summed.

    What the session's cache holds of the beginning is not computed again. The second result
    tells whether each of them was the likeliest.
    """
    parts, greedy = _judged(session, tokens, first)
    return math.fsum(parts), greedy  # exact, so that the size of the blocks does not matter


def token_likelihoods(session: Session, tokens: Sequence[int], first: int) -> list[float]:
    """ln p of each token from ``first`` on, after those before it."""
    return _judged(session, tokens, first)[0]


def _judged(session: Session, tokens: Sequence[int], first: int) -> tuple[list[float], bool]:
    fed = list(tokens[:-1])
    # The logits that predict the first of them come from the token before it.
    reused = min(session.common_prefix(fed), first - 1)
    session.rewind(reused)
    parts: list[float] = []
    greedy, at = True, first
    for logits in session.logits_of(fed[reused:], first - 1 - reused):
        found, likeliest = log_likelihoods(logits, tokens[at : at + len(logits)])
        parts += found.tolist()
        greedy = greedy and bool(likeliest.all())
        at += len(logits)
    if not math.isfinite(sum(parts)):
        raise EvaluationError(
            f"{session.program.path} gives logits that are not finite",
            "The recipe or the KV cache's precision is too small for this model; try fp32.",
        )
    return parts, greedy


def score_continuation(
    session: Session, context: Sequence[int], continuation: Sequence[int]
) -> tuple[float, bool]:
    """ln p of a continuation; of a context that is too long, the beginning is left out."""
    tokens = [*context, *continuation][-(session.context + 1) :]
    first = max(len(tokens) - len(continuation), 1)
    return score_tokens(session, tokens, first)
