"""The text of one window: the likeliest tokens, samples, or the best of several beams."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from satchel.speech.model import SpeechModel
from satchel.speech.rules import Logits, Rules, log_softmax


@dataclass(frozen=True)
class Search:
    """How tokens are chosen. ``samples`` are taken of a temperature above 0, ``beams`` at 0.

    The best text has the highest log-probability for its length, to the power of
    ``length_penalty`` where that is given.
    """

    temperature: float = 0.0
    beams: int = 1
    samples: int = 1
    patience: float = 1.0
    length_penalty: float | None = None

    @property
    def texts(self) -> int:
        return self.samples if self.temperature else self.beams


@dataclass(frozen=True)
class Heard:
    """What is said in a window, and how sure that is."""

    tokens: tuple[int, ...]
    text: str
    mean_log_probability: float
    no_speech: float
    temperature: float

    @property
    def compression(self) -> float:
        """How much smaller the text can be written: what repeats itself is no speech."""
        data = self.text.encode()
        return len(data) / len(zlib.compress(data))


Text = tuple[int, ...]


def decode_window(
    model: SpeechModel,
    prompt: Sequence[int],
    start: int,
    rules: Rules,
    search: Search,
    rng: np.random.Generator,
) -> Heard:
    """The text behind ``prompt``, of which token ``start`` begins the transcript."""
    special, most = rules.tokens, model.context // 2
    opened = [model.open()]
    try:
        rows = model.read(opened[0], prompt, sorted({start, len(prompt) - 1}))
        silent = float(np.exp(log_softmax(rows[0]))[special.no_speech])
        opened += [model.fork(opened[0], len(prompt)) for _ in range(search.texts - 1)]
        beams = Beams(model, search) if not search.temperature and search.beams > 1 else None
        keeper = beams or Line(search, rng)
        keeper.begin(special.end, opened)
        logits = np.repeat(rows[-1:], len(opened), axis=0)
        position = len(prompt)
        for _ in range(most):
            rules.apply(logits, keeper.texts)
            if keeper.choose(logits, position) or position == model.context:
                break
            logits = model.step(keeper.sequences, [text[-1] for text in keeper.texts], position)
            position += 1
        found = keeper.finish()
    finally:
        model.close(opened)
    text, total = max(found, key=lambda one: one[1] / _length(one[0], search))
    words = model.vocabulary.text(text).strip()
    return Heard(text, words, total / (len(text) + 1), silent, search.temperature)


def _length(text: Text, search: Search) -> float:
    if search.length_penalty is None:
        return max(len(text), 1)
    return float(((5 + len(text)) / 6) ** search.length_penalty)


class Line:
    """The likeliest token, or one by chance, of each text by itself."""

    def __init__(self, search: Search, rng: np.random.Generator) -> None:
        self._temperature, self._rng = search.temperature, rng

    def begin(self, end: int, sequences: list[int]) -> None:
        self.end, self.sequences = end, sequences
        self.texts: list[Text] = [()] * len(sequences)
        self._totals = [0.0] * len(sequences)

    def choose(self, logits: Logits, _position: int) -> bool:
        """One token more; whether all texts have ended."""
        likely = log_softmax(logits)
        for number, text in enumerate(self.texts):
            if text[-1:] == (self.end,):
                self.texts[number] = (*text, self.end)
                continue
            row = likely[number]
            token = int(row.argmax()) if not self._temperature else self._by_chance(logits[number])
            self._totals[number] += float(row[token])
            self.texts[number] = (*text, token)
        return all(text[-1] == self.end for text in self.texts)

    def _by_chance(self, row: Logits) -> int:
        # Gumbel's trick: the largest of the noisy logits is a sample of the softmax.
        noise = self._rng.gumbel(size=row.shape).astype(np.float32)
        return int((row / np.float32(self._temperature) + noise).argmax())

    def finish(self) -> list[tuple[Text, float]]:
        return [
            (_before(text, self.end), total)
            for text, total in zip(self.texts, self._totals, strict=True)
        ]


class Beams:
    """The likeliest texts as wholes, several of which are followed at a time."""

    def __init__(self, model: SpeechModel, search: Search) -> None:
        self._model, self._count = model, search.beams
        self._most = round(search.beams * search.patience)

    def begin(self, end: int, sequences: list[int]) -> None:
        self.end, self.sequences = end, sequences
        self.texts: list[Text] = [()] * len(sequences)
        self._totals = [0.0] * len(sequences)
        self._finished: dict[Text, float] = {}

    def choose(self, logits: Logits, position: int) -> bool:
        likely = log_softmax(logits)
        scores: dict[Text, float] = {}
        sources: dict[Text, int] = {}
        for number, text in enumerate(self.texts):
            row = likely[number]
            best = np.argpartition(-row, self._count)[: self._count + 1]
            for token in best.tolist():
                longer = (*text, token)
                scores[longer] = self._totals[number] + float(row[token])
                sources[longer] = number
        kept: list[Text] = []
        ended: dict[Text, float] = {}
        for text in sorted(scores, key=lambda one: -scores[one]):
            if text[-1] == self.end:
                ended[text] = scores[text]
            else:
                kept.append(text)
                if len(kept) == self._count:
                    break
        self._follow(kept, [sources[text] for text in kept], position)
        self._totals = [scores[text] for text in kept]
        for text, score in ended.items():
            if len(self._finished) >= self._most:
                break
            self._finished[text] = score
        return len(self._finished) >= self._most

    def _follow(self, kept: list[Text], sources: list[int], position: int) -> None:
        """Each text goes on from its source's cache; the first of several takes it over."""
        free = [s for n, s in enumerate(self.sequences) if n not in sources]
        taken: set[int] = set()
        sequences = []
        for source in sources:
            own = self.sequences[source]
            if source in taken:
                gone = free.pop()
                self._model.close([gone])
                own = self._model.fork(own, position)
            taken.add(source)
            sequences.append(own)
        self.texts = kept
        self.sequences[:] = sequences  # whoever opened them closes these

    def finish(self) -> list[tuple[Text, float]]:
        left = sorted(zip(self.texts, self._totals, strict=True), key=lambda one: -one[1])
        for text, total in left[: max(0, self._count - len(self._finished))]:
            ended = (*text, self.end)
            self._finished[ended] = total
        return [(_before(text, self.end), total) for text, total in self._finished.items()]


def _before(text: Text, end: int) -> Text:
    return text[: text.index(end)] if end in text else text
