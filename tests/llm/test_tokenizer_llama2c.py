"""llama2.c's tokenizer.bin, written from sentencepiece models and compared with sentencepiece."""

from __future__ import annotations

import io
import struct
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import sentencepiece
from hypothesis import given, settings
from tokenizer_data import any_text, shared_file, training_lines

from satchel.checkpoints.base import TokenizerSource
from satchel.errors import TokenizerError
from satchel.llm.tokenizer import Tokenizer, TokenizerSpec, read_tokenizer


@cache
def library() -> Any:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(training_lines()),
        model_writer=model,
        model_type="bpe",
        vocab_size=600,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        minloglevel=2,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


@cache
def file() -> bytes:
    """The file that llama2.c's converter would write."""
    names = {1: "\n<s>\n", 2: "\n</s>\n"}
    tokens = [
        names.get(at, library().id_to_piece(at)).replace("▁", " ").encode()
        for at in range(library().get_piece_size())
    ]
    data = struct.pack("<i", max(map(len, tokens)))
    for at, token in enumerate(tokens):
        data += struct.pack("<fi", library().get_score(at), len(token)) + token
    return data


def read(data: bytes) -> TokenizerSpec:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.bin"
        path.write_bytes(data)
        return read_tokenizer(TokenizerSource("llama2c", path))


@cache
def ours() -> Tokenizer:
    return Tokenizer(read(file()))


@settings(deadline=None, max_examples=300)
@given(text=any_text())
def test_ids_equal_sentencepieces(text: str) -> None:
    assert ours().encode(text, add_bos=False, parse_special=False) == library().encode(text)


def test_special_tokens() -> None:
    spec = ours().spec
    assert (spec.bos_id, spec.eos_ids, spec.add_bos) == (1, (2,), True)
    assert ours().encode("the") == [1, *library().encode("the")]
    assert ours().is_end(2)
    assert ours().vocab_size == library().get_piece_size()


def join_greedily(data: bytes, text: str) -> list[int]:
    """llama2.c's algorithm in its plainest form: join the best pair until there is none."""
    tokens: list[bytes] = []
    scores: list[float] = []
    at = 4
    while at < len(data):
        score, length = struct.unpack_from("<fi", data, at)
        tokens.append(data[at + 8 : at + 8 + length])
        scores.append(score)
        at += 8 + length
    ids: list[int] = []
    for char in " " + text:
        known = char.encode() in tokens
        ids += [tokens.index(char.encode())] if known else [byte + 3 for byte in char.encode()]
    while True:
        pairs = [
            (scores[tokens.index(pair)], -at, tokens.index(pair))
            for at in range(len(ids) - 1)
            if (pair := tokens[ids[at]] + tokens[ids[at + 1]]) in tokens
        ]
        if not pairs:
            return ids
        _, at, joined = max(pairs)
        ids[-at : 2 - at] = [joined]


def test_real_stories_tokenizer() -> None:
    path = shared_file("llm/stories260K/tok512.bin")
    tokenizer = Tokenizer(read_tokenizer(TokenizerSource("llama2c", path)))
    assert tokenizer.vocab_size == 512
    for text in ["Once upon a time", 'Tim\'s  dog,\n日本 said: "I want to go home!"']:
        ids = tokenizer.encode(text)
        assert ids == [1, *join_greedily(path.read_bytes(), text)]
        assert tokenizer.decode(ids) == text


@pytest.mark.parametrize("cut", [0, 3, 4, 9, 20])
def test_a_file_that_breaks_off(cut: int) -> None:
    with pytest.raises(TokenizerError, match="breaks off at token"):
        read(file()[:cut])


def test_a_token_of_absurd_length() -> None:
    with pytest.raises(TokenizerError, match="breaks off at token 0"):
        read(struct.pack("<ifi", 7, 0.0, 1 << 30))


def test_a_file_without_the_bytes() -> None:
    token = struct.pack("<fi", 0.0, 1) + b"a"
    with pytest.raises(TokenizerError, match="not the 256 bytes"):
        read(struct.pack("<i", 1) + token * 300)


def test_bytes_as_the_first_llama2c_wrote_them() -> None:
    """Older files have the characters 0 to 255 where newer ones have the names of the bytes."""
    data = file()
    for byte in range(256):
        name, character = f"<0x{byte:02X}>".encode(), chr(byte).encode()
        new = struct.pack("<i", len(name)) + name
        old = struct.pack("<i", len(character)) + character
        assert data.count(new) == 1
        data = data.replace(new, old)
    assert read(data).json == ours().spec.json
