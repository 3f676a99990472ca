"""Streams of text against the decoding of all tokens at once."""

from __future__ import annotations

import time
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_tokenizer_sentencepiece import both
from tokenizer_data import any_text, shared_tokenizers, trained_byte_level
from tokenizers import Tokenizer as Backend
from tokenizers import decoders

from satchel import _native
from satchel.checkpoints.base import TokenizerSource
from satchel.errors import ConfigError
from satchel.llm.compiled import NotCompiled, compile_tokenizer
from satchel.llm.text_stream import TextStream
from satchel.llm.tokenizer import Tokenizer, TokenizerSpec, read_tokenizer

PATTERN = r" ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+"
KINDS = ["byte-level", "llama 2", "gemma", "bpe without bytes", "metaspace", "wordpiece", "none"]


@cache
def tokenizer(kind: str) -> Tokenizer:
    """As programs have them: compiled, if the native tokenizer can do what the JSON says."""
    spec = spec_of(kind)
    try:
        return Tokenizer(spec, _native.Tokenizer.from_bytes(compile_tokenizer(spec)))
    except NotCompiled:
        assert kind in ("wordpiece", "none")
        return Tokenizer(spec)


def spec_of(kind: str) -> TokenizerSpec:
    if kind in ("llama 2", "gemma", "bpe without bytes"):
        return both(kind)[0].spec
    text = trained_byte_level(PATTERN) if kind == "byte-level" else both("llama 2")[0].spec.json
    backend = Backend.from_str(text)
    if kind == "byte-level":
        backend.add_special_tokens(["<|im_end|>"])
        backend.add_tokens(["<think> é"])
    elif kind == "none":
        backend.decoder = None
    else:
        other = {"metaspace": decoders.Metaspace(), "wordpiece": decoders.WordPiece(prefix="▁")}
        backend.decoder = other[kind]
    return TokenizerSpec(json=backend.to_str())


def stream_all(stream: TextStream, ids: list[int]) -> str:
    return "".join([*(stream.push(one) for one in ids), stream.finish()])


@st.composite
def some_ids(draw: st.DrawFn, kind: str) -> list[int]:
    """Tokens of texts, mixed with any others: half characters, special ones, bytes."""
    ours = tokenizer(kind)
    from_text = any_text().map(lambda text: ours.encode(text, add_bos=False))
    # The first tokens are the special ones and the bytes, the last ones those that were added.
    anything = st.lists(
        st.integers(0, ours.vocab_size - 1)
        | st.integers(0, min(258, ours.vocab_size - 1))
        | st.integers(ours.vocab_size - 3, ours.vocab_size - 1),
        max_size=8,
    )
    parts = draw(st.lists(from_text | anything, max_size=4))
    return [one for part in parts for one in part]


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, max_examples=250)
@given(data=st.data())
def test_pieces_are_the_whole(kind: str, data: st.DataObject) -> None:
    ids = data.draw(some_ids(kind))
    assert stream_all(TextStream(tokenizer(kind)), ids) == tokenizer(kind).decode(ids)


@pytest.mark.parametrize("kind", ["byte-level", "llama 2", "gemma"])
@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_what_was_given_is_never_taken_back(kind: str, data: st.DataObject) -> None:
    ids = data.draw(some_ids(kind))
    stream, shown = TextStream(tokenizer(kind)), ""
    for one in ids:
        shown += stream.push(one)
        assert tokenizer(kind).decode(ids).startswith(shown)


@pytest.mark.parametrize("kind", ["byte-level", "llama 2", "gemma", "metaspace"])
@settings(deadline=None, max_examples=100)
@given(before=any_text(), text=any_text())
def test_a_continuation_goes_on_from_what_was_before(kind: str, before: str, text: str) -> None:
    ours = tokenizer(kind)
    first, then = ours.encode(before, add_bos=False), ours.encode(text, add_bos=False)
    if kind != "byte-level" and "\ufffd" in ours.decode(first + then):
        return  # bytes that are not a character could have become one with those before
    streamed = stream_all(TextStream(ours, after=first), then)
    assert ours.decode(first) + streamed == ours.decode(first + then)


def test_a_continuation_keeps_its_first_space() -> None:
    ours = tokenizer("llama 2")
    ids = ours.encode("the", add_bos=False)
    assert stream_all(TextStream(ours), ids) == "the"
    assert stream_all(TextStream(ours, after=ours.encode("wrap")), ids) == " the"
    assert stream_all(TextStream(ours, after=[1]), ids) == "the"  # BOS is not text


@pytest.mark.parametrize("kind", ["byte-level", "llama 2"])
@given(text=any_text())
@settings(max_examples=50, deadline=None)
def test_the_bytes_of_tokens_are_those_of_the_text(kind: str, text: str) -> None:
    ours = tokenizer(kind)
    before = ours.encode("a", add_bos=False)
    ids = ours.encode(text, add_bos=False)
    bytes_of_all = b"".join(ours.token_bytes(one) for one in ids)
    assert bytes_of_all.decode("utf-8") == stream_all(TextStream(ours, after=before), ids)
    assert tokenizer("byte-level").token_bytes(3) and tokenizer("llama 2").token_bytes(1) == b"<s>"


@pytest.mark.parametrize("kind", ["byte-level", "llama 2"])
def test_a_character_comes_in_one_piece(kind: str) -> None:
    ours = tokenizer(kind)
    ids = ours.encode("🦙!", add_bos=False)
    stream = TextStream(ours)
    pieces = [stream.push(one) for one in ids] + [stream.finish()]
    assert [piece for piece in pieces if piece] in (["🦙", "!"], ["🦙!"])


def test_half_a_character_at_the_end_is_marked() -> None:
    ours = tokenizer("byte-level")
    ids = ours.encode("a🦙", add_bos=False)[:-1]
    stream = TextStream(ours)
    assert "".join(stream.push(one) for one in ids) == "a"
    assert stream.finish() == ours.decode(ids)[1:] == "\ufffd"


def cut(text: str, stops: list[str]) -> tuple[str, str | None]:
    """The text up to the stop string that is complete first."""
    for end in range(len(text) + 1):
        for stop in sorted(stops, key=len, reverse=True):
            if text[:end].endswith(stop):
                return text[: end - len(stop)], stop
    return text, None


@pytest.mark.parametrize("kind", ["byte-level", "llama 2"])
@settings(deadline=None, max_examples=300)
@given(
    text=st.text("ab🦙 ", max_size=30),
    stops=st.lists(st.text("ab🦙 ", min_size=1, max_size=4), min_size=1, max_size=3, unique=True),
)
def test_stop_strings(kind: str, text: str, stops: list[str]) -> None:
    ours = tokenizer(kind)
    stream = TextStream(ours, stops)
    streamed = stream_all(stream, ours.encode(text, add_bos=False))
    assert (streamed, stream.stop_string) == cut(text, stops)
    assert stream.stopped is (stream.stop_string is not None)


def test_nothing_follows_a_stop_string() -> None:
    ours = tokenizer("byte-level")
    stream = TextStream(ours, ["\n\n"])
    assert stream_all(stream, ours.encode("one\n\ntwo", add_bos=False)) == "one"
    assert stream.push(ours.encode("more", add_bos=False)[0]) == ""
    assert stream.finish() == ""


def test_the_beginning_of_a_stop_string_is_held_back_until_it_is_none() -> None:
    ours = tokenizer("byte-level")
    stream = TextStream(ours, ["</end>"])
    seen = [stream.push(one) for one in ours.encode("x</e", add_bos=False)]
    assert "".join(seen) == "x"
    assert stream.push(ours.encode("y", add_bos=False)[0]) == "</ey"


@pytest.mark.parametrize("stop", [[""], "text"])
def test_wrong_stop_strings(stop: list[str]) -> None:
    with pytest.raises(ConfigError, match="stop string"):
        TextStream(tokenizer("byte-level"), stop)


@pytest.mark.parametrize("kind", ["byte-level", "llama 2", "metaspace"])
def test_long_texts_cost_no_more_per_token(kind: str) -> None:
    ours = tokenizer(kind)
    ids = ours.encode("wrapping the text 🦙 ", add_bos=False) * 2000
    stream = TextStream(ours, ["never there"])
    started = time.perf_counter()
    for one in ids:
        stream.push(one)
    # Some 40,000 tokens: were the cost to grow with the text, this would take minutes.
    assert time.perf_counter() - started < 10


@pytest.mark.parametrize("name", ["smollm2", "gemma3"])
def test_real_tokenizers(name: str) -> None:
    source = TokenizerSource("huggingface", shared_tokenizers() / name)
    ours = Tokenizer(read_tokenizer(source))
    ids = ours.encode("Naïve 日本 👩‍👩‍👧‍👦 text\n  with spaces. 𒀀 \x07", add_bos=False)
    for end in range(len(ids) + 1):
        assert stream_all(TextStream(ours), ids[:end]) == ours.decode(ids[:end])


def test_special_tokens_that_are_to_be_shown() -> None:
    plain = tokenizer("byte-level")
    end = plain.id_of("<|im_end|>")
    assert end is not None
    ids = [*plain.encode("a"), end, *plain.encode("é")]
    shown = plain.showing(["<|im_end|>", "not a token"])
    assert stream_all(TextStream(plain), ids) == "aé"
    assert stream_all(TextStream(shown), ids) == "a<|im_end|>é"
    assert plain.showing(["<think> é"]) is plain  # which is no special one
