"""Sampling against Hugging Face's logits processors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from satchel.errors import ConfigError, ExecutionError
from satchel.llm.sampling import Sampler, SamplingOptions

Logits = NDArray[np.float32]


def options(**given: float) -> SamplingOptions:
    """Options with every filter off that is not given."""
    return SamplingOptions(**{"temperature": 1.0, "top_k": 0, "top_p": 1.0, **given})


def theirs(logits: Logits, how: SamplingOptions, history: list[int]) -> NDArray[np.float64]:
    steps = LogitsProcessorList()
    if how.repetition_penalty != 1:
        steps.append(RepetitionPenaltyLogitsProcessor(how.repetition_penalty))
    steps.append(TemperatureLogitsWarper(how.temperature))
    if how.top_k:
        steps.append(TopKLogitsWarper(how.top_k))
    if how.top_p < 1:
        steps.append(TopPLogitsWarper(how.top_p))
    if how.min_p:
        steps.append(MinPLogitsWarper(how.min_p))
    # In double precision, as ours: in single precision the edge of top-p depends on rounding.
    scores = steps(torch.tensor([history], dtype=torch.long), torch.tensor(logits[None]).double())
    return torch.softmax(scores[0], -1).numpy()


@settings(deadline=None, max_examples=150)
@given(
    seed=st.integers(0, 2**32 - 1),
    size=st.sampled_from([1, 2, 17, 1500, 9000]),
    how=st.builds(
        SamplingOptions,
        temperature=st.sampled_from([0.1, 0.7, 1.0, 3.0]),
        top_k=st.sampled_from([0, 1, 5, 40, 100_000]),
        top_p=st.sampled_from([0.01, 0.5, 0.95, 1.0]),
        min_p=st.sampled_from([0.0, 0.05, 0.9, 1.0]),
        repetition_penalty=st.sampled_from([1.0, 1.3, 0.8]),
    ),
)
def test_distribution_equals_hugging_faces(seed: int, size: int, how: SamplingOptions) -> None:
    random = np.random.default_rng(seed)
    logits = random.normal(0, 3, size).astype(np.float32)
    history = random.integers(0, size, 12).tolist()
    ours = Sampler(how).distribution(logits, history)
    np.testing.assert_allclose(ours, theirs(logits, how, history), rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize(
    "how",
    [options(top_k=3), options(top_p=0.6), options(min_p=0.4), options(top_k=2, top_p=0.7)],
    ids=["top_k", "top_p", "min_p", "both"],
)
def test_ties_are_kept_and_cut_as_hugging_face_does(how: SamplingOptions) -> None:
    logits = np.array([1, 2, 2, 0, 2, 2, -1, 1], np.float32)
    ours = Sampler(how).distribution(logits)
    np.testing.assert_allclose(ours, theirs(logits, how, [0]), rtol=1e-6)


def test_top_p_of_a_flat_distribution_looks_at_all_tokens() -> None:
    logits = np.random.default_rng(0).normal(0, 0.01, 20_000).astype(np.float32)
    how = options(top_p=0.9)
    ours = Sampler(how).distribution(logits)
    assert 17_000 < np.count_nonzero(ours) < 18_100
    np.testing.assert_allclose(ours, theirs(logits, how, [0]), rtol=1e-5)


def test_greedy_takes_the_lowest_id_of_equals() -> None:
    logits = np.array([0, 5, 5, -2], np.float32)
    assert Sampler(options(temperature=0)).next(logits) == 1
    assert Sampler(options(temperature=0)).distribution(logits).tolist() == [0, 1, 0, 0]


def test_greedy_heeds_the_repetition_penalty_and_leaves_the_logits_alone() -> None:
    logits = np.array([0, 5, 4.9, -2], np.float32)
    sampler = Sampler(options(temperature=0, repetition_penalty=1.2))
    assert sampler.next(logits, [1]) == 2
    assert logits.tolist() == pytest.approx([0, 5, 4.9, -2])


def test_samples_follow_the_distribution() -> None:
    logits = np.random.default_rng(1).normal(0, 1.5, 50).astype(np.float32)
    sampler = Sampler(options(top_k=12, temperature=0.9, seed=7))
    expected = sampler.distribution(logits)
    draws = 20_000
    counts = np.bincount([sampler.next(logits) for _ in range(draws)], minlength=50)
    assert counts[expected == 0].sum() == 0
    likely = expected > 0
    chi_square = np.sum((counts - draws * expected)[likely] ** 2 / (draws * expected[likely]))
    assert chi_square < 31.3  # the 0.1% point for 11 degrees of freedom


def test_a_seed_gives_the_same_tokens_again() -> None:
    logits = np.random.default_rng(2).normal(0, 1, 1000).astype(np.float32)

    def draw(seed: int) -> list[int]:
        sampler = Sampler(options(seed=seed))
        return [sampler.next(logits) for _ in range(20)]

    assert draw(5) == draw(5)
    assert draw(5) != draw(6)


def test_minus_infinity_rules_a_token_out() -> None:
    logits = np.array([0.0, -np.inf, 0.5], np.float32)
    assert Sampler(options()).distribution(logits)[1] == 0


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_broken_logits_are_an_error(bad: float, temperature: float) -> None:
    logits = np.array([0.0, bad, 0.5], np.float32)
    with pytest.raises(ExecutionError, match="for token 1"):
        Sampler(options(temperature=temperature)).next(logits)


def test_logits_that_are_all_minus_infinity_are_an_error() -> None:
    with pytest.raises(ExecutionError, match="-inf"):
        Sampler(options()).next(np.full(4, -np.inf, np.float32))


def test_logits_must_be_one_row() -> None:
    with pytest.raises(ExecutionError, match="not one row"):
        Sampler(options()).next(np.zeros((1, 4), np.float32))


@pytest.mark.parametrize("token", [-1, 4])
def test_history_must_be_in_the_vocabulary(token: int) -> None:
    with pytest.raises(ExecutionError, match=f"Token {token} "):
        Sampler(options(repetition_penalty=1.1)).next(np.zeros(4, np.float32), [token])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1),
        ("temperature", float("nan")),
        ("temperature", float("inf")),
        ("top_k", -1),
        ("top_k", 1.5),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("min_p", -0.1),
        ("min_p", 2.0),
        ("repetition_penalty", 0.0),
        ("seed", -1),
    ],
)
def test_wrong_options_are_named(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=name):
        SamplingOptions(**{name: value})  # type: ignore[arg-type]


def test_penalties_of_the_answer_and_a_bias() -> None:
    logits = np.zeros(4, np.float32)
    sampler = Sampler(SamplingOptions(temperature=0, frequency_penalty=0.5, presence_penalty=1.0))
    sampler.answer_from = 2
    # The prompt's tokens 0 and 1 are not counted; 2 was said twice and 3 once.
    assert sampler.next(np.array([0, 0.1, 3, 0], np.float32), [0, 1, 2, 2, 3]) == 2
    assert sampler.next(np.array([0, 0.1, 2, 0], np.float32), [0, 1, 2, 2, 3]) == 1
    biased = Sampler(SamplingOptions(temperature=0, logit_bias={3: 5.0, 1: -100.0}))
    assert biased.next(logits) == 3
    assert biased.distribution(logits)[3] == 1
    for wrong in ({"frequency_penalty": 3}, {"presence_penalty": -2.5}, {"logit_bias": {1: 101}}):
        with pytest.raises(ConfigError):
            SamplingOptions(**wrong)  # type: ignore[arg-type]
    with pytest.raises(ExecutionError, match="vocabulary"):
        Sampler(SamplingOptions(logit_bias={9: 1.0})).next(logits)
