"""Generation: why it ends, what it reuses, and that a conversation stays consistent."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import satchel
from satchel import LLM, SamplingOptions
from satchel.errors import ConfigError, ContextFullError, TemplateError
from satchel.llm.session import Session
from support.tiny_llm import write_tiny_llm


@pytest.fixture
def llm(hybrid_program: Path) -> LLM:
    return LLM(hybrid_program)


def test_greedy_text_is_that_of_a_plain_loop(hybrid_program: Path, llm: LLM) -> None:
    generation = llm.generate("hello", raw=True, max_new_tokens=12).finish()
    session = Session(llm.program)
    tokens = llm.tokenizer.encode("hello")
    logits = session.feed(tokens)
    wanted = []
    for _ in range(12):
        token = int(np.argmax(logits))
        if llm.tokenizer.is_end(token):
            break
        wanted.append(token)
        logits = session.feed([token])
    assert generation.tokens == wanted
    assert generation.text == llm.tokenizer.decode(wanted)


def test_kv_and_hybrid_give_the_same_text(hybrid_program: Path) -> None:
    texts = [
        LLM(hybrid_program, mode=mode).generate("a longer prompt", max_new_tokens=10).finish()
        for mode in ("kv", "hybrid")
    ]
    assert texts[0].tokens == texts[1].tokens
    assert texts[0].text == texts[1].text


def test_max_new_tokens(llm: LLM) -> None:
    generation = llm.generate("x", raw=True, max_new_tokens=3).finish()
    assert (len(generation.tokens), generation.stop_reason) == (3, "max_new_tokens")
    with pytest.raises(ConfigError, match="at least 1"):
        llm.generate("x", raw=True, max_new_tokens=0)


def test_end_token_stops_and_is_not_part_of_the_text(llm: LLM) -> None:
    first = llm.generate("x", raw=True, max_new_tokens=4).finish().tokens
    object.__setattr__(llm.tokenizer, "_end_ids", frozenset({9999, first[2]}))
    generation = llm.generate("x", raw=True, max_new_tokens=4).finish()
    assert generation.stop_reason == "end_token"
    assert generation.tokens == first[: first.index(first[2])]


def test_stop_string(llm: LLM) -> None:
    text = llm.generate("x", raw=True, max_new_tokens=8).finish().text
    stop = text[3:5]
    generation = llm.generate("x", raw=True, max_new_tokens=8, stop=[stop]).finish()
    assert generation.stop_reason == "stop_string"
    assert generation.text == text[: text.index(stop)]


def test_a_full_context_stops_and_says_so(llm: LLM) -> None:
    generation = llm.generate("x" * 40, raw=True).finish()
    assert generation.stop_reason == "context_full"
    # The last token is chosen when the cache is full, and need not be in it.
    assert len(generation.tokens) == 48 - 40 + 1
    assert generation.stats.slides == 0


def test_sliding_goes_on_and_counts(llm: LLM) -> None:
    options = {"raw": True, "max_new_tokens": 60, "on_context_full": "slide"}
    generation = llm.generate("x" * 40, **options).finish()
    assert generation.stop_reason in ("max_new_tokens", "end_token")
    assert generation.stats.slides >= 1
    assert llm.session.tokens[0] == llm.tokenizer.encode("x")[0]
    with pytest.raises(ConfigError, match="no way 'forget'"):
        llm.generate("x", on_context_full="forget")


def test_a_prompt_longer_than_the_context(llm: LLM) -> None:
    with pytest.raises(ContextFullError, match=r"60 tokens, and the context 48"):
        llm.generate("y" * 60, raw=True)
    generation = llm.generate("y" * 60, raw=True, max_new_tokens=3, on_context_full="slide")
    assert len(generation.finish().tokens) == 3


def test_an_empty_prompt_is_an_error(llm: LLM) -> None:
    with pytest.raises(ConfigError, match="empty"):
        llm.generate("", raw=True)


def test_seed_makes_sampling_repeatable(llm: LLM) -> None:
    def tokens(seed: int) -> list[int]:
        sampling = SamplingOptions(temperature=1.0, seed=seed)
        return llm.generate("x", raw=True, max_new_tokens=12, sampling=sampling).finish().tokens

    assert tokens(1) == tokens(1)
    assert tokens(1) != tokens(2)


def test_several_turns_reuse_the_cache_and_equal_a_fresh_start(hybrid_program: Path) -> None:
    llm = LLM(hybrid_program)
    chat = llm.chat(max_new_tokens=5)
    first = chat.send("hi").finish()
    second = chat.send("you").finish()
    # All that the first turn had in its cache begins the second turn's prompt.
    assert second.stats.reused_tokens >= first.stats.prompt_tokens
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": first.text},
        {"role": "user", "content": "you"},
    ]
    sampling = llm.chat_sampling
    fresh = LLM(hybrid_program).generate(messages, max_new_tokens=5, sampling=sampling).finish()
    assert fresh.stats.reused_tokens == 0
    assert second.tokens == fresh.tokens


def test_stopping_to_listen_harms_nothing(llm: LLM) -> None:
    whole = llm.generate("z", raw=True, max_new_tokens=10).finish().text
    pieces = iter(llm.generate("z", raw=True, max_new_tokens=10))
    next(pieces)
    assert llm.generate("z", raw=True, max_new_tokens=10).finish().text == whole


def test_a_turn_that_cannot_start_is_not_remembered(llm: LLM) -> None:
    chat = llm.chat(max_new_tokens=2)
    chat.send("a").finish()
    before = list(chat.messages)
    with pytest.raises(ContextFullError):
        chat.send("b" * 100)
    assert chat.messages == before
    assert chat.send("c").finish().text


def test_no_template_is_an_error_with_advice(tmp_path: Path) -> None:
    checkpoint = write_tiny_llm(tmp_path / "base", template=None)
    llm = LLM(satchel.export(checkpoint, tmp_path / "base.satchel", context=32))
    assert not llm.has_chat_template
    with pytest.raises(TemplateError, match="--raw"):
        llm.generate("x")
    assert llm.generate("x", raw=True, max_new_tokens=2).finish().tokens


def test_a_template_error_is_never_a_broken_prompt(tmp_path: Path) -> None:
    template = "{{ raise_exception('system messages are not supported') }}"
    checkpoint = write_tiny_llm(tmp_path / "strict", template=template)
    llm = LLM(satchel.export(checkpoint, tmp_path / "strict.satchel", context=32))
    with pytest.raises(TemplateError, match="system messages are not supported"):
        llm.generate("x")


def test_not_a_language_model(tmp_path: Path) -> None:
    from satchel.errors import ExecutionError
    from satchel.graph import GraphBuilder
    from support.programs import write_program

    b = GraphBuilder("forward")
    x = b.input("x", (2,))
    b.output(b.node("add", x, x))
    path = write_program(tmp_path / "sum.satchel", [b.finish()])
    with pytest.raises(ExecutionError, match="not a language model"):
        LLM(path)


@pytest.mark.parametrize("lookahead", ["on", "off"])
def test_logprobs_of_an_answer_are_those_of_its_text(hybrid_program: Path, lookahead: str) -> None:
    llm = LLM(hybrid_program)
    answer = llm.generate(
        "abc", raw=True, max_new_tokens=12, temperature=0, logprobs=3, lookahead=lookahead
    ).finish()
    assert [token for token, _, _ in answer.logprobs] == answer.tokens
    fresh = LLM(hybrid_program).session
    rows = [fresh.feed([*llm.tokenizer.encode("abc")])]
    rows += [fresh.feed([token]) for token in answer.tokens[:-1]]
    for row, (token, value, best) in zip(rows, answer.logprobs, strict=True):
        wanted = row.astype(np.float64) - np.log(np.exp(row.astype(np.float64)).sum())
        assert value == pytest.approx(wanted[token], abs=1e-6)
        assert [t for t, _ in best] == np.argsort(-wanted, kind="stable")[:3].tolist()
        assert best[0] == (token, value)  # it was greedy
