"""Choosing the next token from a model's logits."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from satchel import _native
from satchel.errors import ConfigError, ExecutionError
from satchel.remarks import remark

if TYPE_CHECKING:
    from satchel.llm.grammar import Guide

_MOST_TOKENS = 2**32 - 1
_GROUP = 64


@dataclass(frozen=True)
class SamplingOptions:
    """How to choose. In this order: penalties, bias, temperature, top-k, top-p, min-p.

    >>> SamplingOptions(temperature=0).greedy
    True
    """

    temperature: float = 0.8  # 0 takes the most likely token, always
    top_k: int = 40  # 0 is off
    top_p: float = 0.95  # 1 is off
    min_p: float = 0.0  # 0 is off
    repetition_penalty: float = 1.0  # 1 is off
    seed: int | None = None  # None draws one
    frequency_penalty: float = 0.0  # for each time that a token is in the answer; 0 is off
    presence_penalty: float = 0.0  # if it is at all
    logit_bias: Mapping[int, float] = field(default_factory=dict)  # added to tokens' logits

    def __post_init__(self) -> None:
        _check("temperature", self.temperature, lambda x: x >= 0, "0 or more")
        _check("top_k", self.top_k, _is_count, "a whole number, 0 or more")
        _check("top_p", self.top_p, lambda x: 0 < x <= 1, "above 0 and at most 1")
        _check("min_p", self.min_p, lambda x: 0 <= x <= 1, "from 0 to 1")
        _check("repetition_penalty", self.repetition_penalty, lambda x: x > 0, "above 0")
        if self.seed is not None:
            _check("seed", self.seed, _is_count, "a whole number, 0 or more")
        for name in ("frequency_penalty", "presence_penalty"):
            _check(name, getattr(self, name), lambda x: -2 <= x <= 2, "from -2 to 2")
        for token, bias in self.logit_bias.items():
            _check("logit_bias", token, _is_count, "given for token ids")
            _check("logit_bias", bias, lambda x: -100 <= x <= 100, "from -100 to 100")

    @property
    def greedy(self) -> bool:
        return self.temperature == 0

    @property
    def has_penalties(self) -> bool:
        return self.repetition_penalty != 1 or bool(self.frequency_penalty or self.presence_penalty)

    @property
    def is_plain(self) -> bool:
        """Whether the likeliest token is taken, whatever the text has had."""
        return self.greedy and not self.has_penalties and not self.logit_bias

    def changed(self, **given: Any) -> SamplingOptions:
        """These options with some others; None leaves one as it is.

        >>> SamplingOptions().changed(temperature=0.2, top_k=None).top_k
        40
        """
        return replace(self, **{k: v for k, v in given.items() if v is not None})

    def describe(self) -> str:
        """
        >>> SamplingOptions(temperature=0.6, top_p=0.9, top_k=0).describe()
        'temperature 0.6, top-p 0.9'
        """
        parts = ["greedy"]
        if not self.greedy:
            parts = [f"temperature {self.temperature:g}"]
            parts += [f"top-k {self.top_k}"] if self.top_k else []
            parts += [f"top-p {self.top_p:g}"] if self.top_p < 1 else []
            parts += [f"min-p {self.min_p:g}"] if self.min_p else []
        if self.repetition_penalty != 1:
            parts.append(f"repetition penalty {self.repetition_penalty:g}")
        if self.frequency_penalty:
            parts.append(f"frequency penalty {self.frequency_penalty:g}")
        if self.presence_penalty:
            parts.append(f"presence penalty {self.presence_penalty:g}")
        if self.logit_bias:
            parts.append(f"a bias for {len(self.logit_bias)} tokens")
        return ", ".join(parts)


def token_rule(
    options: SamplingOptions, text: Sequence[int] = (), answer_from: int = 0
) -> _native.TokenRule:
    """The options for whoever chooses tokens where the logits are; ``text`` is what penalties look
    back on."""
    return _native.TokenRule(
        options.temperature,
        min(options.top_k, _MOST_TOKENS),
        options.top_p,
        options.min_p,
        options.repetition_penalty,
        options.frequency_penalty,
        options.presence_penalty,
        list(options.logit_bias.items()),
        list(text),
        answer_from,
    )


def _check(name: str, value: object, good: Callable[[Any], bool], allowed: str) -> None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    try:
        number = number and math.isfinite(value)  # type: ignore[arg-type]
    except OverflowError:  # a whole number that no float is
        number, value = False, "too large"
    if not number or not good(value):
        raise ConfigError(f"The sampling option {name} is {value}", f"It must be {allowed}")


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and value >= 0


# The fields of generation_config.json that say how to sample.
STORED = ("do_sample", "temperature", "top_k", "top_p", "min_p", "repetition_penalty")
_GREEDY = SamplingOptions(temperature=0.0)
_GREEDY_CHAT = SamplingOptions(temperature=0.0, repetition_penalty=1.05)
_SAMPLED = SamplingOptions(temperature=1.0, top_k=50, top_p=1.0)  # what transformers takes


def stored_generation(generation: Mapping[str, Any]) -> dict[str, Any]:
    """What a program keeps of a generation_config.json; a value that cannot be is told."""
    stored: dict[str, Any] = {}
    for name in STORED:
        value = generation.get(name)
        if value is None:
            continue
        try:
            usual_sampling({**stored, name: value})
        except (ConfigError, TypeError):
            remark(f"Ignored in the generation configuration: {name} is {value!r}.")
        else:
            stored[name] = value
    return stored


def usual_sampling(generation: object, chats: bool = False) -> SamplingOptions:
    """How a model is sampled where nothing else is said, from its generation_config.json.

    Without one it is greedy; one that ``chats`` then has a slight penalty of repetition, for small
    models go round in circles in a conversation. A temperature alone means that it is sampled, as
    in GGUF files.

    >>> usual_sampling({"do_sample": True, "temperature": 0.6}).describe()
    'temperature 0.6, top-k 50'
    >>> usual_sampling(None).describe()
    'greedy'
    """
    given = dict(generation) if isinstance(generation, Mapping) else {}
    if not given and chats:
        return _GREEDY_CHAT
    sampled = given.pop("do_sample", "temperature" in given)
    if not isinstance(sampled, bool):
        raise ConfigError(f"do_sample is {sampled!r}", "It must be true or false")
    if not sampled:
        given = {k: v for k, v in given.items() if k == "repetition_penalty"}
    options = _SAMPLED if sampled else _GREEDY
    return options.changed(**{name: given[name] for name in STORED if name in given})


@dataclass
class TokenRecord:
    """How likely each chosen token was to the model, and the ``top`` likeliest in its place."""

    top: int
    tokens: list[tuple[int, float, list[tuple[int, float]]]] = field(default_factory=list)

    def add(self, token: int, logits: NDArray[np.float32]) -> None:
        scores = logits.astype(np.float64)
        scores -= scores.max()
        scores -= math.log(np.exp(scores).sum())
        best: list[tuple[int, float]] = []
        if self.top:
            ids = _at_least_kth(scores, min(self.top, scores.size))
            order = ids[np.argsort(-scores[ids], kind="stable")][: self.top]
            best = [(int(each), float(scores[each])) for each in order]
        self.tokens.append((token, float(scores[token]), best))


class Sampler:
    """Draws tokens; the same seed and logits give the same tokens.

    >>> Sampler(SamplingOptions(temperature=0)).next(np.array([0.1, 2.0, 0.3], np.float32))
    1
    """

    def __init__(self, options: SamplingOptions | None = None) -> None:
        self.options = options = options or SamplingOptions()
        seed = secrets.randbits(128) if options.seed is None else options.seed
        self._native = _native.Sampler(
            options.temperature,
            min(options.top_k, _MOST_TOKENS),
            options.top_p,
            options.min_p,
            options.repetition_penalty,
            options.frequency_penalty,
            options.presence_penalty,
            list(options.logit_bias.items()),
            _words(seed),
        )
        self._drawn: list[float] = []  # random numbers that nobody has used yet
        self.answer_from = 0  # where in the history the answer begins
        self.record: TokenRecord | None = None  # is told of every token that is chosen
        self.guide: Guide | None = None  # says which tokens may be chosen

    def next(self, logits: NDArray[np.float32], history: Sequence[int] = ()) -> int:
        """The next token. ``history`` is what penalties look back on.

        A logit of minus infinity rules its token out; NaN or infinity is an error.
        """
        token = self._native.choose(self._penalized(logits, history))
        if self.record is not None:
            self.record.add(token, logits)
        if self.guide is not None:
            self.guide.take(token)
        return token

    @property
    def is_asked_for_each(self) -> bool:
        """Whether somebody must see the logits of each token, or has a say in which it is."""
        return self.record is not None or self.guide is not None

    def random_numbers(self, count: int) -> list[float]:
        """The next random numbers; they come again until :meth:`spend_numbers`."""
        while len(self._drawn) < count:
            self._drawn.append(self._native.random())
        return self._drawn[:count]

    def spend_numbers(self, count: int) -> None:
        """So many of the next random numbers have been used."""
        del self._drawn[:count]

    def distribution(
        self, logits: NDArray[np.float32], history: Sequence[int] = ()
    ) -> NDArray[np.float64]:
        """The probability of every token, as :meth:`next` draws them."""
        return np.array(self._native.distribution(self._penalized(logits, history)))

    def _penalized(
        self, logits: NDArray[np.float32], history: Sequence[int]
    ) -> NDArray[np.float32]:
        if logits.ndim != 1 or logits.size == 0:
            raise ExecutionError(
                f"Logits of shape {logits.shape} are not one row", "Give the last position's"
            )
        options = self.options
        logits = np.ascontiguousarray(logits, np.float32)
        if (history and options.has_penalties) or options.logit_bias:
            logits = logits.copy()  # it is the caller's
            self._native.penalize(logits, history, self.answer_from)
        return logits if self.guide is None else self.guide.masked(logits)


def _words(seed: int) -> list[int]:
    """
    >>> _words(2**33 + 1)
    [1, 2]
    """
    words = [seed & 0xFFFFFFFF]
    while seed := seed >> 32:
        words.append(seed & 0xFFFFFFFF)
    return words


def _at_least_kth(values: NDArray[np.floating], k: int) -> NDArray[np.int64]:
    """Where the ``k`` largest are, and all that equal the smallest of them, in order."""
    groups = values.size // _GROUP
    if groups > k:
        # The k best groups have a value each that is no smaller than the k-th best group's
        # largest: what lies below that can be left out, which is nearly everything.
        largest = values[: groups * _GROUP].reshape(_GROUP, groups).max(axis=0)
        at = np.flatnonzero(values >= _kth_largest(largest, k))
        few = values[at]
        return at[few >= _kth_largest(few, k)]
    return np.flatnonzero(values >= _kth_largest(values, k))


def _kth_largest(values: NDArray[np.floating], k: int) -> np.floating:
    kth: np.floating = np.partition(values, values.size - k)[values.size - k]
    return kth
