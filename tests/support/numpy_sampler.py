"""A sampler in numpy, to compare the native one with: plain, and slower."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.errors import ExecutionError
from satchel.llm.sampling import SamplingOptions

Logits = NDArray[np.float32]


class NumpySampler:
    """Draws tokens; the same seed and logits give the same tokens."""

    def __init__(self, options: SamplingOptions | None = None) -> None:
        self.options = options or SamplingOptions()
        self._random = np.random.Generator(np.random.PCG64(self.options.seed))
        self.answer_from = 0  # where in the history the answer begins

    def next(self, logits: NDArray[np.float32], history: Sequence[int] = ()) -> int:
        """The next token. ``history`` is what penalties look back on.

        A logit of minus infinity rules its token out; NaN or infinity is an error.
        """
        logits = self._penalized(logits, history)
        best = _best(logits)
        if self.options.greedy:
            return best
        ids, weights = self._candidates(logits, best)
        edges = np.cumsum(weights)
        drawn = int(np.searchsorted(edges, self._random.random() * edges[-1], side="right"))
        drawn = min(drawn, edges.size - 1)
        return drawn if ids is None else int(ids[drawn])

    def distribution(
        self, logits: NDArray[np.float32], history: Sequence[int] = ()
    ) -> NDArray[np.float64]:
        """The probability of every token, as :meth:`next` draws them."""
        logits = self._penalized(logits, history)
        best = _best(logits)
        result = np.zeros(logits.size)
        if self.options.greedy:
            result[best] = 1.0
            return result
        ids, weights = self._candidates(logits, best)
        result[slice(None) if ids is None else ids] = weights / weights.sum()
        return result

    def _penalized(
        self, logits: NDArray[np.float32], history: Sequence[int]
    ) -> NDArray[np.float32]:
        if logits.ndim != 1 or logits.size == 0:
            raise ExecutionError(
                f"Logits of shape {logits.shape} are not one row", "Give the last position's"
            )
        options = self.options
        logits = repetition(logits, options.repetition_penalty, history)
        if options.frequency_penalty or options.presence_penalty:
            answer = history[self.answer_from :]
            logits = frequency(logits, options.frequency_penalty, options.presence_penalty, answer)
        return biased(logits, options.logit_bias)

    def _candidates(
        self, logits: NDArray[np.float32], best: int
    ) -> tuple[NDArray[np.int64] | None, NDArray[np.float64]]:
        """The tokens that are left (None for all) and their weights, the best one's being 1."""
        options = self.options
        ids: NDArray[np.int64] | None = None
        if 0 < options.top_k < logits.size:
            ids = _at_least_kth(logits, options.top_k)
        chosen = logits if ids is None else logits[ids]
        weights = np.exp((chosen.astype(np.float64) - float(logits[best])) / options.temperature)
        if options.top_p < 1:
            kept = _nucleus(weights, options.top_p)
            ids, weights = kept if ids is None else ids[kept], weights[kept]
        if options.min_p > 0:
            kept = np.flatnonzero(weights >= options.min_p)
            ids, weights = kept if ids is None else ids[kept], weights[kept]
        return ids, weights


def _best(logits: NDArray[np.float32]) -> int:
    # argmax stops at the first NaN, so that one look at its answer finds NaN and infinity both.
    best = int(np.argmax(logits))
    if not math.isfinite(logits[best]):
        raise ExecutionError(
            f"The model gave the logit {logits[best]} for token {best}",
            "Its weights or recipe are broken: try `satchel verify`, or export with fp32",
        )
    return best


def _at_least_kth(values: NDArray[np.floating], k: int) -> NDArray[np.int64]:
    """Where the ``k`` largest are, and all that equal the smallest of them, in order."""
    return np.flatnonzero(values >= _kth_largest(values, k))


def _kth_largest(values: NDArray[np.floating], k: int) -> np.floating:
    kth: np.floating = np.partition(values, values.size - k)[values.size - k]
    return kth


def _nucleus(weights: NDArray[np.float64], top_p: float) -> NDArray[np.int64]:
    """The fewest tokens whose share reaches ``top_p``, in order of their ids.

    Of equal ones at the edge those with higher ids stay, as in Hugging Face's.
    """
    target = top_p * weights.sum()
    order = np.argsort(weights, kind="stable")[::-1]
    reached = np.cumsum(weights[order])
    # A token stays when those before it have not reached the share yet.
    keep = 1 + int(np.searchsorted(reached, target, side="left"))
    return np.sort(order[:keep])


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
    was at all."""
    if (each == 0 and once == 0) or len(answer) == 0:
        return logits
    seen, counts = np.unique(_known(answer, logits.size), return_counts=True)
    logits = logits.copy()
    logits[seen] -= (each * counts + once).astype(np.float32)
    return logits


def biased(logits: Logits, bias: Mapping[int, float]) -> Logits:
    """Add to the logits of some tokens."""
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
