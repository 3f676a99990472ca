"""When each word is said: the way through the audio on which tokens listened most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from satchel.speech.model import SpeechModel
from satchel.speech.result import Segment, Word

POSITIONS_PER_SECOND = 50  # of the encoder
_MEDIAN = 7  # positions
_BEFORE = "\"'“¿([{-"  # marks that belong to the word behind them
_BEHIND = "\"'.。,，!！?？:：”)]}、"  # and to the one before
_ENDS = ".。!！?？"
_LONGEST_MEDIAN = 0.7  # seconds

Array = NDArray[np.float32]


@dataclass
class Timing:
    text: str
    tokens: list[int]
    start: float
    end: float
    probability: float


def add_words(
    model: SpeechModel,
    segments: Sequence[Segment],
    begin: Sequence[int],
    language: str | None,
    offset: float,
    frames: int,
    last_end: float,
) -> float:
    """Give the segments of a window their words; returns when the last one ends.

    ``begin`` are the tokens that a transcript begins with, ``offset`` is where the window does.
    """
    words_end = model.vocabulary.special.end
    texts = [[token for token in segment.tokens if token < words_end] for segment in segments]
    timings = _timings(model, [t for text in texts for t in text], begin, language, frames)
    lengths = np.array([t.end - t.start for t in timings])
    lengths = lengths[lengths > 0]
    median = min(_LONGEST_MEDIAN, float(np.median(lengths))) if len(lengths) else 0.0
    if len(lengths):
        _shorten_at_sentences(timings, 2 * median)
    join_marks(timings)
    waiting = iter(timings)
    for segment, text in zip(segments, texts, strict=True):
        words, taken = [], 0
        while taken < len(text) and (timing := next(waiting, None)):
            taken += len(timing.tokens)
            if timing.text:
                start, end = (round(offset + at, 2) for at in (timing.start, timing.end))
                words.append(Word(timing.text, start, end, timing.probability))
        if words:
            _fit_to_segment(words, segment, median, last_end)
            last_end = segment.end
        segment.words = words
    return last_end


def _timings(
    model: SpeechModel,
    text: Sequence[int],
    begin: Sequence[int],
    language: str | None,
    frames: int,
) -> list[Timing]:
    special = model.vocabulary.special
    if not text:
        return []
    scores, logits = model.align([*begin, special.no_timestamps, *text, special.end])
    rows = logits[len(begin) : len(begin) + len(text), : special.end]
    powers = np.exp(rows - rows.max(axis=1, keepdims=True))
    sure = powers[np.arange(len(text)), list(text)] / powers.sum(axis=1)
    weights = listening(scores[:, :, : frames // 2])[len(begin) : -1]
    tokens, times = cheapest_path(-weights)
    words = model.vocabulary.words([*text, special.end], language)
    if len(words) < 2:
        return []
    bounds = np.concatenate([[0], np.cumsum([len(part) for _, part in words[:-1]])])
    moves = np.concatenate([[True], np.diff(tokens).astype(bool)])
    starts = times[moves] / POSITIONS_PER_SECOND
    return [
        Timing(said, part, float(starts[a]), float(starts[b]), float(sure[a:b].mean()))
        for (said, part), a, b in zip(words[:-1], bounds[:-1], bounds[1:], strict=True)
    ]


def listening(scores: Array) -> Array:
    """How much each token listened where, [tokens, positions]: all heads' share alike."""
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = powers / powers.sum(axis=-1, keepdims=True)
    mean, spread = weights.mean(axis=-2, keepdims=True), weights.std(axis=-2, keepdims=True)
    weights = (weights - mean) / np.maximum(spread, 1e-20)
    half = _MEDIAN // 2
    if weights.shape[-1] > half:
        edges = np.pad(weights, ((0, 0), (0, 0), (half, half)), mode="reflect")
        views = np.lib.stride_tricks.sliding_window_view(edges, _MEDIAN, axis=-1)
        weights = np.median(views, axis=-1)
    mean_of_heads: Array = weights.mean(axis=0)
    return mean_of_heads


def cheapest_path(cost: Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Dynamic time warping: the rows and columns of the cheapest way from corner to corner.

    >>> rows, columns = cheapest_path(np.array([[0.0, 0.0, 1.0], [1.0, 1.0, 0.0]]))
    >>> rows.tolist(), columns.tolist()
    ([0, 0, 1], [0, 1, 2])
    """
    n, m = cost.shape
    total = np.full((n + 1, m + 1), np.inf)
    total[0, 0] = 0
    came = np.zeros((n + 1, m + 1), np.int8)
    came[0, :], came[:, 0] = 2, 1
    # Cells of a diagonal depend on the two diagonals before alone, so that each is one operation.
    for diagonal in range(2, n + m + 1):
        i = np.arange(max(1, diagonal - m), min(n, diagonal - 1) + 1)
        j = diagonal - i
        both, row, column = total[i - 1, j - 1], total[i - 1, j], total[i, j - 1]
        way = np.where(
            (both < row) & (both < column), 0, np.where((row < both) & (row < column), 1, 2)
        )
        total[i, j] = cost[i - 1, j - 1] + np.choose(way, (both, row, column))
        came[i, j] = way
    path = []
    i, j = n, m
    while i > 0 or j > 0:
        path.append((i - 1, j - 1))
        way = came[i, j]
        i, j = i - (way != 2), j - (way != 1)
    rows, columns = np.array(path[::-1]).T
    return rows, columns


def join_marks(timings: list[Timing]) -> None:
    """Punctuation belongs to words; what was joined is left without text and tokens."""
    following = len(timings) - 1
    for at in range(len(timings) - 2, -1, -1):
        mark = timings[at]
        if mark.text.startswith(" ") and mark.text.strip() in _BEFORE:
            word = timings[following]
            word.text, word.tokens = mark.text + word.text, mark.tokens + word.tokens
            mark.text, mark.tokens = "", []
        else:
            following = at
    before = 0
    for at in range(1, len(timings)):
        word, mark = timings[before], timings[at]
        if not word.text.endswith(" ") and mark.text in _BEHIND:
            word.text, word.tokens = word.text + mark.text, word.tokens + mark.tokens
            mark.text, mark.tokens = "", []
        else:
            before = at


def _shorten_at_sentences(timings: list[Timing], longest: float) -> None:
    """What is longer than words are is the silence at the end of a sentence."""
    for before, one in pairwise(timings):
        if one.end - one.start > longest:
            if one.text in _ENDS:
                one.end = one.start + longest
            elif before.text in _ENDS:
                one.start = one.end - longest


def _fit_to_segment(words: list[Word], segment: Segment, median: float, last_end: float) -> None:
    """Words at the ends of a segment swallow silence; the segment's own times tell how much."""
    first, last, longest = words[0], words[-1], 2 * median
    second = words[1] if len(words) > 1 else None
    stretched = first.end - first.start > longest or (
        second is not None and second.end - first.start > 2 * longest
    )
    if first.end - last_end > 4 * median and stretched:
        if second is not None and second.end - second.start > longest:
            border = max(second.end / 2, second.end - longest)
            first.end = second.start = border
        first.start = max(0, first.end - longest)
    if segment.start < first.end and segment.start - 0.5 > first.start:
        first.start = max(0, min(first.end - median, segment.start))
    else:
        segment.start = first.start
    if segment.end > last.start and segment.end + 0.5 < last.end:
        last.end = max(last.start + median, segment.end)
    else:
        segment.end = last.end
