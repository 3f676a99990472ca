"""The real SmolLM2-135M, where it is on this machine or may be fetched (93 MB)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import satchel
import satchel.sources
from models.quantized_check import QuantizedPair
from support.compare import relative_difference
from support.smollm2 import find_smollm2

QUESTION = "What is the capital of France?"
NEW_TOKENS = 64


@pytest.fixture(scope="module")
def checkpoint() -> Path:
    return find_smollm2()


@pytest.fixture(scope="module")
def pair(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> QuantizedPair:
    return QuantizedPair(checkpoint, tmp_path_factory.mktemp("smollm2") / "s.satchel", context=256)


def test_it_knows_the_capital_of_france(pair: QuantizedPair) -> None:
    answer = satchel.LLM(pair.program).generate(QUESTION, max_new_tokens=NEW_TOKENS).finish()
    assert "Paris" in answer.text


def test_greedy_tokens_are_those_of_the_reference(pair: QuantizedPair) -> None:
    prompt = satchel.LLM(pair.program).chat_tokens([{"role": "user", "content": QUESTION}])
    block = {"tokens": prompt, "position": [0], "rows": [len(prompt) - 1]}
    native, reference = pair.run("prefill_forward", **block)
    tokens = []
    for at in range(len(prompt), len(prompt) + NEW_TOKENS):
        assert relative_difference(native, reference) <= 1e-3
        assert int(native.argmax()) == int(reference.argmax()), f"after {tokens}"
        tokens.append(int(native.argmax()))
        native, reference = pair.run("kv_forward", tokens=tokens[-1:], position=[at])
    # What was compared is what a user gets, up to the end of the answer.
    generation = satchel.LLM(pair.program).generate(QUESTION, max_new_tokens=NEW_TOKENS).finish()
    assert generation.tokens == tokens[: len(generation.tokens)]
    assert len(set(tokens)) > 10 and np.isfinite(native).all()
