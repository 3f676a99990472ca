"""What changes a model's logits before a token is chosen: penalties and biases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.errors import ExecutionError

Logits = NDArray[np.float32]


def repetition(logits: Logits, penalty: float, history: Sequence[int]) -> Logits:
    """Tokens of the text so far, the prompt too, are made less likely by a factor."""
    if penalty == 1 or len(history) == 0:
        return logits
    seen = np.unique(_known(history, logits.size))
    scores = logits[seen]
    logits = logits.copy()
    logits[seen] = np.where(scores < 0, scores * penalty, scores / penalty)
    return logits


def frequency(logits: Logits, each: float, once: float, answer: Sequence[int]) -> Logits:
    """OpenAI's penalties: ``each`` for every time that a token was in the answer, ``once`` if it
    was at all.

    >>> frequency(np.zeros(3, np.float32), 0.5, 1.0, [2, 2]).tolist()
    [0.0, 0.0, -2.0]
    """
    if (each == 0 and once == 0) or len(answer) == 0:
        return logits
    seen, counts = np.unique(_known(answer, logits.size), return_counts=True)
    logits = logits.copy()
    logits[seen] -= (each * counts + once).astype(np.float32)
    return logits


def biased(logits: Logits, bias: Mapping[int, float]) -> Logits:
    """Add to the logits of some tokens.

    >>> biased(np.zeros(3, np.float32), {1: -100.0}).tolist()
    [0.0, -100.0, 0.0]
    """
    if not bias:
        return logits
    tokens = _known(list(bias), logits.size)
    logits = logits.copy()
    logits[tokens] += np.fromiter(bias.values(), np.float32, len(bias))
    return logits


def _known(tokens: Sequence[int], vocabulary: int) -> NDArray[Any]:
    array = np.asarray(tokens, dtype=np.int64)
    low, high = array.min(), array.max()
    if low < 0 or high >= vocabulary:
        wrong = low if low < 0 else high
        raise ExecutionError(
            f"Token {wrong} in the history is outside the vocabulary of {vocabulary}",
            "The tokenizer does not fit the model",
        )
    return array
