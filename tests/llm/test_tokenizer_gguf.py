"""Tokenizers in GGUF metadata, against `tokenizers`, sentencepiece and llama.cpp's vectors."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from test_tokenizer_sentencepiece import both
from tokenizer_data import (
    TEXTS,
    any_text,
    shared_file,
    shared_tokenizers,
    trained_byte_level,
    training_lines,
)
from tokenizers import Tokenizer as Backend

from satchel.checkpoints.base import TokenizerSource
from satchel.errors import TokenizerError
from satchel.llm.tokenizer import Tokenizer, TokenizerSpec, read_tokenizer
from satchel.llm.tokenizer_sources.pre_tokenizers import PRE_TOKENIZERS

# From the models' own tokenizer.json files; the readers put them together from parts.
PATTERNS = {
    "gpt-2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "llama-bpe": (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    "stablelm2": (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    "seed-coder": (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}"
        r"| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    "gpt-4o": (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
        r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
}


def metadata_of(text: str, pre: str, **more: Any) -> dict[str, Any]:
    """A `tokenizers` JSON in the form that a converter gives it in a GGUF file."""
    model = json.loads(text)["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    kinds = {"<|endoftext|>": 3, "<|im_start|>": 3, "<|im_end|>": 3, "<think> ": 4}
    tokens += [token for token in kinds if token not in model["vocab"]]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [kinds.get(token, 1) for token in tokens],
        "tokenizer.ggml.merges": [
            merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]
        ],
        "tokenizer.ggml.bos_token_id": tokens.index("<|im_start|>"),
        "tokenizer.ggml.eos_token_id": tokens.index("<|im_end|>"),
        "tokenizer.chat_template": "{{ messages }}",
        **{f"tokenizer.ggml.{name}": value for name, value in more.items()},
    }


def read(metadata: dict[str, Any]) -> TokenizerSpec:
    return read_tokenizer(TokenizerSource("gguf", Path("model.gguf"), metadata))


@cache
def byte_level(pre: str) -> tuple[Tokenizer, Backend]:
    text = trained_byte_level(PATTERNS[pre])
    return Tokenizer(read(metadata_of(text, pre))), Backend.from_str(text)


@pytest.mark.parametrize("pre", PATTERNS)
def test_byte_level_ids_equal_the_source(pre: str) -> None:
    ours, source = byte_level(pre)
    for text in [*TEXTS, *training_lines()[:50], "CamelCase HTTPServer don'T a/b//\n"]:
        ids = ours.encode(text, add_bos=False)
        assert ids == source.encode(text).ids
        assert ours.decode(ids) == text


@settings(deadline=None, max_examples=200)
@given(text=any_text())
def test_byte_level_ids_equal_the_source_for_any_text(text: str) -> None:
    for pre in PATTERNS:
        ours, source = byte_level(pre)
        assert ours.encode(text, add_bos=False) == source.encode(text).ids


def test_special_tokens_and_template() -> None:
    ours, source = byte_level("gpt-2")
    base, spec = source.get_vocab_size(), ours.spec
    assert (spec.bos_token, spec.bos_id) == ("<|im_start|>", base + 1)
    assert spec.eos_ids == (base + 2, base)  # its own first, then what also ends a turn
    assert spec.chat_template == "{{ messages }}"
    assert not spec.add_bos
    assert ours.encode("<|im_start|>x<think> ") == [base + 1, *source.encode("x").ids, base + 3]
    assert ours.decode([base + 1, base + 3]) == "<think> "


def test_end_tokens_are_united() -> None:
    text = trained_byte_level(PATTERNS["gpt-2"])
    spec = read(metadata_of(text, "gpt-2", eot_token_id=7, eom_token_id=9))
    assert {7, 9} < set(spec.eos_ids)


@pytest.mark.parametrize(
    ("pre", "given", "expected"),
    [("llama-bpe", {}, True), ("llama-bpe", {"add_bos_token": False}, False),
     ("gpt-2", {"add_bos_token": True}, True), ("qwen2", {}, False)],
)  # fmt: skip
def test_when_bos_is_added(pre: str, given: dict[str, bool], expected: bool) -> None:
    text = trained_byte_level(PATTERNS["gpt-2"])
    assert read(metadata_of(text, pre, **given)).add_bos is expected


def test_qwen_composes_characters_first() -> None:
    ours = Tokenizer(read(metadata_of(trained_byte_level(PATTERNS["gpt-2"]), "qwen2")))
    assert ours.encode("e\u0301") == ours.encode("é")


@pytest.mark.parametrize("pre", PRE_TOKENIZERS)
def test_every_pre_tokenizer_keeps_all_text(pre: str) -> None:
    ours = Tokenizer(read(metadata_of(trained_byte_level(PATTERNS["gpt-2"]), pre)))
    for text in TEXTS:
        composed = text.replace("e\u0301", "é") if pre in ("qwen2", "qwen35") else text
        assert ours.decode(ours.encode(text, add_bos=False)) == composed


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("Hello World 123\n", ["Hello", " World", " ", "1", "2", "3", "\n"]),
        # Each pattern cuts what those before it left whole, and ASCII's letters lie in the ranges
        # of the one for punctuation; the full stop is in the Chinese one's.
        ("naïve Ωμέγα, привет!", ["na", "ï", "ve", " Ωμέγα", ",", " привет", "!"]),
        ("x=（1）。 你好ab  ", ["x", "=（", "1", "）", "。", " ", "你好", "ab", "  "]),
    ],
)
def test_deepseek_llm_cuts_text_as_its_tokenizer_json_does(text: str, pieces: list[str]) -> None:
    """Letters with case, punctuation, spaces at the end, Chinese, digits one by one."""
    metadata = metadata_of(trained_byte_level(PATTERNS["gpt-2"]), "deepseek-llm")
    split = Backend.from_str(read(metadata).json).pre_tokenizer
    assert [text[a:b] for _, (a, b) in split.pre_tokenize_str(text)] == pieces


def piece_metadata(kind: str, **more: Any) -> dict[str, Any]:
    _, library = both(kind)
    size = library.get_piece_size()
    types = [
        2
        if library.is_unknown(i)
        else 3
        if library.is_control(i)
        else 6
        if library.is_byte(i)
        else 1
        for i in range(size)
    ]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [library.id_to_piece(i) for i in range(size)],
        "tokenizer.ggml.scores": np.array([library.get_score(i) for i in range(size)], np.float32),
        "tokenizer.ggml.token_type": np.array(types, np.int32),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        **{f"tokenizer.ggml.{name}": value for name, value in more.items()},
    }


def test_pieces_equal_sentencepieces() -> None:
    _, library = both("llama 2")
    ours = Tokenizer(read(piece_metadata("llama 2")))
    assert ours.spec.add_bos
    for text in [*TEXTS, *training_lines()[:50]]:
        assert ours.encode(text, add_bos=False) == library.encode(text)


def test_the_space_prefix_can_be_off() -> None:
    ours = Tokenizer(read(piece_metadata("llama 2", add_space_prefix=False)))
    assert ours.decode(ours.encode(" the")) == " the"
    assert ours.encode(" the", add_bos=False) == both("llama 2")[1].encode("the")


def test_phi_3_swallows_the_line_end_after_a_special_token() -> None:
    metadata = piece_metadata("llama 2") | {"general.architecture": "phi3"}
    metadata["tokenizer.ggml.tokens"] = [*metadata["tokenizer.ggml.tokens"], "<|end|>"]
    metadata["tokenizer.ggml.scores"] = [*metadata["tokenizer.ggml.scores"], -1000.0]
    metadata["tokenizer.ggml.token_type"] = [*metadata["tokenizer.ggml.token_type"].tolist(), 3]
    ours = Tokenizer(read(metadata))
    assert ours.encode("<|end|>\nthe") == ours.encode("<|end|>the")
    assert ours.encode("<s>\nthe") != ours.encode("<s>the")


def contents(path: Path) -> dict[str, Any]:
    return {name: field.contents() for name, field in gguf.GGUFReader(path).fields.items()}


@pytest.mark.parametrize("name", ["llama-spm", "phi-3", "gpt-2", "starcoder"])
def test_llama_cpps_test_vectors(name: str) -> None:
    path = shared_tokenizers() / "llama_cpp_vocab" / f"ggml-vocab-{name}.gguf"
    ours = Tokenizer(read(contents(path)))
    texts = path.with_suffix(".gguf.inp").read_bytes().decode().split("\n__ggml_vocab_test__\n")
    vectors = path.with_suffix(".gguf.out").read_text().splitlines()
    assert len(vectors) > 40
    for text, vector in zip(texts, vectors, strict=False):  # the last text has no vector
        assert ours.encode(text, add_bos=False) == [int(one) for one in vector.split()], text


@pytest.mark.parametrize(
    ("folder", "pre"),
    [
        ("smollm2", "smollm"),
        ("qwen2_5", "qwen2"),
        ("llama3_2", "llama-bpe"),
        ("o200k_gpt4o", "gpt-4o"),
    ],
)
def test_real_tokenizers_are_the_same_by_way_of_gguf(folder: str, pre: str) -> None:
    text = (shared_tokenizers() / folder / "tokenizer.json").read_text("utf-8")
    ours, source = Tokenizer(read(metadata_of(text, pre))), Backend.from_str(text)
    wiki = shared_file("text/wiki.test.raw").read_text("utf-8")[:100_000]
    for sample in [*TEXTS, wiki]:
        ids = source.encode(sample, add_special_tokens=False).ids
        assert ours.encode(sample, add_bos=False) == ids


GPT2: dict[str, Any] = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "gpt-2",
    "tokenizer.ggml.tokens": ["a", "b", "ab"],
    "tokenizer.ggml.merges": ["a b"],
}


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("model", "t5", "kind 't5'"),
        ("pre", "novel", "'novel'"),
        ("tokens", None, "no tokenizer.ggml.tokens"),
        ("tokens", ["a", 5], r"tokens\[1\] is 5"),
        ("tokens", ["a", "b", "a"], "0 and 2 are both 'a'"),
        ("token_type", [1], "3 tokens have 1 types"),
        ("merges", ["ab"], "'ab' is not a merge"),
        ("merges", ["a c"], "not a usable tokenizer"),
        ("eos_token_id", 3, "eos is token 3 of 3"),
    ],
)
def test_damaged_metadata(name: str, value: Any, why: str) -> None:
    with pytest.raises(TokenizerError, match=why):
        read({**GPT2, f"tokenizer.ggml.{name}": value})


def test_pieces_need_as_many_scores() -> None:
    metadata = {**GPT2, "tokenizer.ggml.model": "llama", "tokenizer.ggml.scores": [0.0]}
    with pytest.raises(TokenizerError, match="3 tokens have 1 scores"):
        read(metadata)


def test_empty_tokens_get_a_name() -> None:
    spec = read({**GPT2, "tokenizer.ggml.tokens": ["a", "b", "ab", ""]})
    assert Tokenizer(spec).id_of("[EMPTY_3]") == 3
