"""Lookahead gives exactly the greedy text, whatever it guesses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

import satchel
from satchel import LLM, SamplingOptions
from satchel.errors import ConfigError
from satchel.llm.generation import Generation
from satchel.llm.lookahead.options import LookaheadSizes
from satchel.llm.session import Session
from satchel.llm.steps import Look
from support.tiny_llm import write_tiny_llm

SIZES = [
    LookaheadSizes(),
    LookaheadSizes(2, 5, 3),
    LookaheadSizes(5, 2, 3),
    LookaheadSizes(3, 0),
    LookaheadSizes(2, 15, 15),
]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, LLM]:
    """What they attend to changes their choice rarely, so that they soon repeat themselves and
    guesses come true."""
    folder = tmp_path_factory.mktemp("lookahead")
    made = {}
    for name, changes, options in (
        ("plain", {}, {}),
        ("kv8", {}, {"kv_bits": 8}),
        ("fp32", {}, {"recipe": "fp32"}),
        ("16a4w", {}, {"recipe": "16a4w"}),
        ("window", {"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 9}, {}),
    ):
        if name == "window":
            changes["max_window_layers"] = 1
        checkpoint = write_tiny_llm(folder / name, **changes)
        weights = checkpoint / "model.safetensors"
        quiet = {n: w * 0.02 if "o_proj" in n else w for n, w in load_file(weights).items()}
        save_file(quiet, weights)
        output = folder / f"{name}.satchel"
        path = satchel.export(checkpoint, output, context=80, prefill_ar_len=12, **options)
        made[name] = LLM(path, threads=2)
    return made


def both(
    llm: LLM,
    prompt: str,
    sizes: LookaheadSizes | None = None,
    mode: str = "on",
    **options: Any,
) -> Generation:
    """The same prompt with and without; everything that counts is the same."""
    options = {"raw": True, "max_new_tokens": 60, **options}
    plain = llm.generate(prompt, lookahead="off", **options).finish()
    held = list(llm.session.tokens)
    llm.session.rewind(0)
    guessed = llm.generate(prompt, lookahead=mode, lookahead_sizes=sizes, **options).finish()
    assert guessed.tokens == plain.tokens
    assert (guessed.text, guessed.stop_reason) == (plain.text, plain.stop_reason)
    assert guessed.stats.slides == plain.stats.slides
    assert llm.session.tokens == held  # so that the next turn reuses as much
    return guessed


@settings(max_examples=25)
@given(
    st.sampled_from(["plain", "kv8", "fp32", "16a4w", "window"]),
    st.text("abc ", min_size=1, max_size=70),
    st.sampled_from(SIZES),
    st.integers(1, 60),
    st.sampled_from(["stop", "slide"]),
)
def test_the_text_is_the_greedy_one(
    programs: dict[str, LLM],
    name: str,
    prompt: str,
    sizes: LookaheadSizes,
    most: int,
    full: str,
) -> None:
    """Also near the end of the context, and across it."""
    both(programs[name], prompt, sizes, max_new_tokens=most, on_context_full=full)


def test_guesses_come_true(programs: dict[str, LLM]) -> None:
    """Else the tests above would prove nothing."""
    for llm in programs.values():
        stats = both(llm, "abcabcabc").stats.lookahead
        assert stats.branches and stats.guessing_steps > 0
        assert stats.tokens == stats.steps + stats.accepted
        assert stats.accepted > 5


@settings(max_examples=10)
@given(st.text("ab", min_size=1, max_size=8), st.integers(0, 30))
def test_an_end_inside_a_guess(programs: dict[str, LLM], prompt: str, at: int) -> None:
    llm = programs["plain"]
    tokens = llm.generate(prompt, raw=True, max_new_tokens=40).finish().tokens
    end = tokens[min(at, len(tokens) - 1)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(llm.tokenizer, "_end_ids", frozenset({end}))
        assert both(llm, prompt).stop_reason == "end_token"
    text = llm.generate(prompt, raw=True, max_new_tokens=40).finish().text
    both(llm, prompt, stop=[text[at // 2 : at // 2 + 3] or "x"])


@pytest.mark.parametrize("penalty", [1.1, 2.0])
def test_a_repetition_penalty_looks_back_on_the_guesses_too(
    programs: dict[str, LLM], penalty: float
) -> None:
    sampling = SamplingOptions(temperature=0, repetition_penalty=penalty)
    both(programs["plain"], "abcabc", sampling=sampling)


def test_auto_is_the_default_and_gives_the_same(programs: dict[str, LLM]) -> None:
    llm = programs["kv8"]
    assert both(llm, "abab", mode="auto").stats.lookahead.mode == "auto"
    stats = llm.generate("abab", raw=True, max_new_tokens=4).finish().stats
    assert stats.to_dict()["lookahead"]["mode"] == "auto"


def test_auto_stops_where_guessing_does_not_pay(programs: dict[str, LLM]) -> None:
    """With steps that cost as much as their tokens one by one, nothing is gained."""
    llm = programs["plain"]
    shares = []
    for dear in (True, False):
        llm.session.costs = _FixedCosts(dear)
        stats = llm.generate("abcabc", raw=True, max_new_tokens=60).finish().stats.lookahead
        shares.append(stats.guessing_steps / stats.steps)
    assert shares[0] == 0 and shares[1] > 0.5


class _FixedCosts:
    def __init__(self, dear: bool) -> None:
        self._dear = dear

    def record(self, rows: int, seconds: float) -> None:
        pass

    def measured(self, rows: int) -> float:
        return self.seconds(rows)

    def seconds(self, rows: int) -> float:
        return float(rows) if self._dear else 1.0


def test_turns_of_a_chat(programs: dict[str, LLM]) -> None:
    answers = []
    for mode in ("off", "on"):
        llm = LLM(programs["plain"].program)
        chat = llm.chat(lookahead=mode, max_new_tokens=9)
        turns = [chat.send(text).finish() for text in ("hi", "you", "hi")]
        answers.append([(t.tokens, t.stats.reused_tokens) for t in turns])
    assert answers[0] == answers[1]
    assert answers[0][2][1] > 0


def test_after_a_tree_the_cache_is_that_of_a_line(programs: dict[str, LLM]) -> None:
    for llm in programs.values():
        text = [3, 1, 4, 1, 5]
        session, fresh = Session(llm.program), Session(llm.program)
        session.feed(text)
        # 9 is kept, not 2; and of what follows it 7, not 6.
        session.look(Look([8, 2, 9, 6, 7], [-1, 0, 0, 2, 2], [0, 4]))
        session.accept([0, 2, 4], [8, 9, 7])
        np.testing.assert_array_equal(session.feed([1]), fresh.feed([*text, 8, 9, 7, 1]))


def test_a_program_exported_for_lookahead_guesses_by_default(
    tiny_checkpoint: Path, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"mode": "lookahead", "ngram": 3, "window": 2, "gcap": 2}
    path = satchel.export(tiny_checkpoint, tmp_path / "l.satchel", context=48, **options)
    stats = LLM(path).generate("ab", raw=True, max_new_tokens=8).finish().stats.lookahead
    assert (stats.mode, stats.sizes) == ("on", LookaheadSizes(3, 2, 2))
    with pytest.raises(ConfigError, match="ngram is for mode lookahead, not hybrid"):
        satchel.export(tiny_checkpoint, tmp_path / "x.satchel", ngram=3)


def test_an_older_program_guesses_from_the_text_only(
    hybrid_program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm = LLM(hybrid_program)
    monkeypatch.setattr(llm.session, "_tree", None)
    stats = both(llm, "abcabc").stats.lookahead
    assert not stats.branches and stats.guessing_steps > 0
    llm.session.rewind(0)
    with pytest.raises(satchel.errors.ExecutionError, match=r"no step of 3 tokens.*Export"):
        llm.session.look(Look([1, 2, 3], [-1, 0, 0], [0]))


def test_where_there_is_none(kv_program: Path, hybrid_program: Path) -> None:
    llm = LLM(kv_program)
    stats = llm.generate("x", raw=True, max_new_tokens=3).finish().stats.lookahead
    assert stats.mode == "off" and "one token at a time" in str(stats.off_because)
    with pytest.raises(ConfigError, match=r"no lookahead.*mode hybrid"):
        llm.generate("x", raw=True, lookahead="on")
    sampled = LLM(hybrid_program).generate("x", raw=True, temperature=1.0, lookahead="on")
    assert "sampled" in str(sampled.stats.lookahead.off_because)
    with pytest.raises(ConfigError, match="no lookahead 'yes'"):
        llm.generate("x", raw=True, lookahead="yes")
