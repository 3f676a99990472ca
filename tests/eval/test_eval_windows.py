"""How a text is cut, and which tokens count."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from satchel.errors import ConfigError, EvaluationError
from satchel.eval.texts import encode_pair, leading_tokens, read_text, text_tokens
from satchel.eval.windows import split_windows
from satchel.llm.llm import LLM


@given(
    count=st.integers(2, 60),
    lead=st.integers(0, 2),
    window=st.integers(4, 20),
    stride=st.none() | st.integers(1, 20),
)
def test_every_token_counts_once(count: int, lead: int, window: int, stride: int | None) -> None:
    """But for those that have nothing before them: the first of windows without a lead."""
    tokens = list(range(count))
    if stride is not None and stride > window:
        with pytest.raises(ConfigError, match="leaves tokens of the text out"):
            split_windows(tokens, [-1] * lead, window, stride)
        return
    windows = split_windows(tokens, [-1] * lead, window, stride)
    counted = [t for w in windows for t in w.tokens[w.first :]]
    assert all(len(w.tokens) <= window and w.counted > 0 for w in windows)
    assert all(w.tokens[:lead] == (-1,) * lead for w in windows)
    assert counted == sorted(set(counted))
    if lead:
        assert counted == tokens
    else:
        apart = [t for t in tokens if t not in counted]
        step = window if stride is None else stride
        assert apart == ([0] if step < window else list(range(0, count, window)))


@given(count=st.integers(2, 60), window=st.integers(4, 20), stride=st.integers(1, 20))
def test_strides_are_those_of_the_usual_recipe(count: int, window: int, stride: int) -> None:
    """The sliding window that the documentation of transformers shows."""
    if stride > window:
        return
    wanted = []
    previous = 0
    for begin in range(0, count, stride):
        end = min(begin + window, count)
        targets = list(range(begin, end))[-(end - previous) :]
        wanted.append([t for t in targets if t != begin])
        previous = end
        if end == count:
            break
    windows = split_windows(list(range(count)), [], window, stride)
    assert [list(w.tokens[w.first :]) for w in windows] == [w for w in wanted if w]


def test_a_window_needs_room(program: Path) -> None:
    with pytest.raises(ConfigError, match=r"window of 2 tokens is too short.*Use 3"):
        split_windows([1, 2, 3], [9], 2)


def test_a_text_of_one_token_is_an_error(program: Path) -> None:
    tokenizer = LLM(program).tokenizer
    with pytest.raises(EvaluationError, match=r"x\.txt has 1 tokens.*longer text"):
        text_tokens(tokenizer, "a", None, "x.txt")
    with pytest.raises(EvaluationError, match="has 0 tokens"):
        text_tokens(tokenizer, "", None, "x.txt")
    with pytest.raises(EvaluationError, match="larger limit"):
        text_tokens(tokenizer, "abc", 1, "x.txt")


def test_a_text_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(EvaluationError, match=r"no\.txt cannot be read: No such file"):
        read_text(tmp_path / "no.txt")
    (tmp_path / "bad.txt").write_bytes(b"abc\xff")
    with pytest.raises(EvaluationError, match=r"bad\.txt is not UTF-8 text: byte 3"):
        read_text(tmp_path / "bad.txt")


def test_names_of_special_tokens_are_text(program: Path) -> None:
    """A text about tokens must not end in the middle."""
    tokenizer = LLM(program).tokenizer
    tokens = text_tokens(tokenizer, "a<|end|>b", None, "x")
    assert len(tokens) == len("a<|end|>b")
    context, continuation = encode_pair(tokenizer, "ab", " cd")
    assert tokenizer.decode(context) == "ab" and tokenizer.decode(continuation) == " cd"
    assert context[: len(leading_tokens(tokenizer))] == leading_tokens(tokenizer)
