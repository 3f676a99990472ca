"""The native sampler: numpy's random numbers, and the choices of a sampler in numpy."""

from __future__ import annotations

import numpy as np
import pytest

from satchel import _native
from satchel.errors import ConfigError, ExecutionError
from satchel.llm.sampling import Sampler, SamplingOptions
from support.numpy_sampler import NumpySampler


def words(seed: int) -> list[int]:
    found = [seed & 0xFFFFFFFF]
    while seed := seed >> 32:
        found.append(seed & 0xFFFFFFFF)
    return found


@pytest.mark.parametrize("seed", [0, 1, 42, 2**32 - 1, 2**32, 2**63 + 5, 2**160 + 17])
def test_random_numbers_are_numpys(seed: int) -> None:
    random = _native.Random(words(seed))
    wanted = np.random.Generator(np.random.PCG64(seed)).random(100)
    assert [random.next() for _ in range(100)] == wanted.tolist()


OPTIONS = [
    {"temperature": 0.0},
    {"temperature": 1.0, "top_k": 0, "top_p": 1.0},
    {"temperature": 0.7, "top_k": 5, "top_p": 1.0},
    {"temperature": 1.3, "top_k": 0, "top_p": 0.8},
    {"temperature": 0.8, "top_k": 40, "top_p": 0.95},
    {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.05},
    {"temperature": 0.9, "repetition_penalty": 1.3, "frequency_penalty": 0.5},
    {"temperature": 0.0, "repetition_penalty": 1.1, "presence_penalty": -1.5},
    {"temperature": 0.9, "logit_bias": {3: 5.0, 7: -100.0}},
]


@pytest.mark.parametrize("given", OPTIONS, ids=",".join)
@pytest.mark.parametrize("vocabulary", [9, 500, 40000])
def test_choices_are_those_of_numpy(given: dict, vocabulary: int) -> None:
    options = SamplingOptions(seed=11, **given)
    oracle, ours = NumpySampler(options), Sampler(options)
    numbers = np.random.default_rng(vocabulary)
    history = [int(token) for token in numbers.integers(0, vocabulary, 6)]
    oracle.answer_from = ours.answer_from = 2
    for step in range(60):
        logits = numbers.normal(0, 3, vocabulary).astype(np.float32)
        if step % 3 == 0:
            logits = np.round(logits)  # many are equal
        if step % 7 == 0:
            logits[1:4] = -np.inf
        given_logits = logits.copy()
        token = ours.next(logits, history)
        assert token == oracle.next(logits, history)
        assert np.array_equal(logits, given_logits)  # they are the caller's
        history.append(token)


def test_distributions_are_those_of_numpy() -> None:
    for given in OPTIONS[:6]:
        options = SamplingOptions(**given)
        logits = np.random.default_rng(2).normal(0, 2, 300).astype(np.float32)
        wanted = NumpySampler(options).distribution(logits)
        np.testing.assert_allclose(Sampler(options).distribution(logits), wanted, rtol=1e-12)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="top_p"):
        _native.Sampler(1.0, 0, 0.0, 0.0, 1.0, 0.0, 0.0, [], [0])
    for bad in (np.nan, np.inf):
        with pytest.raises(ExecutionError, match="for token 1"):
            Sampler(SamplingOptions(temperature=0)).next(np.array([0, bad, 0], np.float32))
    with pytest.raises(ExecutionError, match="outside the vocabulary"):
        Sampler(SamplingOptions(repetition_penalty=1.2)).next(np.zeros(3, np.float32), [5])
