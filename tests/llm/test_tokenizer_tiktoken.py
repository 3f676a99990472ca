"""Llama 3's files of ranks against the tiktoken library."""

from __future__ import annotations

import base64
import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import tiktoken
from hypothesis import given, settings
from tokenizer_data import TEXTS, any_text, shared_file, shared_tokenizers, trained_byte_level

from satchel.checkpoints.base import TokenizerSource
from satchel.errors import TokenizerError
from satchel.llm.chat_template import ChatTemplate
from satchel.llm.tokenizer import Tokenizer, TokenizerSpec, read_tokenizer
from satchel.llm.tokenizer_sources.byte_level import CHAR_TO_BYTE

# As Meta publishes it; the readers have it in parts.
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def ranks_of(vocab: dict[str, int]) -> dict[bytes, int]:
    return {bytes(CHAR_TO_BYTE[c] for c in token): rank for token, rank in vocab.items()}


def read(lines: bytes) -> TokenizerSpec:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.model"
        path.write_bytes(lines)
        return read_tokenizer(TokenizerSource("tiktoken", path))


def file_of(ranks: dict[bytes, int]) -> bytes:
    return b"".join(base64.b64encode(t) + f" {rank}\n".encode() for t, rank in ranks.items())


@cache
def both() -> tuple[Tokenizer, tiktoken.Encoding]:
    ranks = ranks_of(json.loads(trained_byte_level(LLAMA3))["model"]["vocab"])
    library = tiktoken.Encoding("small", pat_str=LLAMA3, mergeable_ranks=ranks, special_tokens={})
    return Tokenizer(read(file_of(ranks))), library


@settings(deadline=None, max_examples=400)
@given(text=any_text())
def test_ids_equal_tiktokens_for_any_text(text: str) -> None:
    ours, library = both()
    ids = ours.encode(text, add_bos=False, parse_special=False)
    assert ids == library.encode_ordinary(text)
    assert ours.decode(ids) == text


def test_special_tokens_follow_the_ranks() -> None:
    ours, library = both()
    base, spec = library.n_vocab, ours.spec
    assert ours.vocab_size == base + 256
    assert (spec.bos_token, spec.bos_id, spec.add_bos) == ("<|begin_of_text|>", base, True)
    assert set(spec.eos_ids) == {base + 1, base + 8, base + 9}
    assert ours.id_of("<|eot_id|>") == base + 9
    assert ours.encode("<|start_header_id|>user<|end_header_id|>\n\n", add_bos=False) == [
        base + 6,
        *library.encode_ordinary("user"),
        base + 7,
        *library.encode_ordinary("\n\n"),
    ]


def test_a_chat_has_llama_3s_form_and_one_bos() -> None:
    ours, library = both()
    template = ChatTemplate(ours.spec.chat_template, ours.spec.special_tokens)
    talk = [{"role": "system", "content": "Be brief. "}, {"role": "user", "content": "Hi"}]
    prompt = template.render(talk)
    assert prompt == (
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    )
    assert ours.encode(prompt).count(library.n_vocab) == 1
    assert ours.encode(prompt) == ours.encode(prompt, add_bos=False)


def test_real_llama_3_ranks_equal_hugging_faces_tokenizer() -> None:
    folder = shared_tokenizers() / "llama3_2"
    theirs = Tokenizer(read_tokenizer(TokenizerSource("huggingface", folder)))
    vocab = json.loads(theirs.spec.json)["model"]["vocab"]
    ours = Tokenizer(read(file_of(ranks_of(vocab))))
    wiki = shared_file("text/wiki.test.raw").read_text("utf-8")[:200_000]
    for text in [*TEXTS, wiki, "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"]:
        assert ours.encode(text) == theirs.encode(text)
    assert ours.vocab_size == theirs.vocab_size
    assert [ours.id_of(f"<|reserved_special_token_{i}|>") for i in (0, 2, 247)] == [
        theirs.id_of(f"<|reserved_special_token_{i}|>") for i in (0, 2, 247)
    ]


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (b"\x0a\x05<unk>\x15", "line 2 is not"),
        (b"IQ== 0\nno-base64! 1\n", "line 2 is not"),
        (b"IQ== 0\nIg== x\n", "line 2 is not"),
        (b"IQ== 0\nIg== 2\n", "are not 0, 1, 2"),
        (b"", "its 0 tokens"),
    ],
)
def test_files_that_are_not_ranks(lines: bytes, why: str) -> None:
    with pytest.raises(TokenizerError, match=why):
        read(lines)


def test_every_byte_must_have_a_token() -> None:
    ranks = {bytes([b]) if b != 65 else b"too long": b for b in range(256)}
    with pytest.raises(TokenizerError, match="byte 65 is not"):
        read(file_of(ranks))
