"""Hugging Face folders against transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from tokenizer_data import TEXTS, any_text, shared_file, shared_tokenizers, trained_byte_level
from tokenizers import Tokenizer as Backend
from tokenizers.processors import TemplateProcessing
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from satchel.checkpoints.base import TokenizerSource
from satchel.errors import TokenizerError
from satchel.llm.chat_template import ChatTemplate
from satchel.llm.tokenizer import Tokenizer, TokenizerSpec, read_tokenizer

PATTERN = r" ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+"


def write_folder(
    folder: Path, around: str = "$A", config: dict[str, Any] | None = None, **files: Any
) -> Path:
    """A folder with a tokenizer of 500 tokens and, behind them, <s>, </s> and <|end|>."""
    backend = Backend.from_str(trained_byte_level(PATTERN))
    backend.add_special_tokens(["<s>", "</s>", "<|end|>"])
    named = [(token, backend.token_to_id(token)) for token in ("<s>", "</s>", "<|end|>")]
    backend.post_processor = TemplateProcessing(single=around, special_tokens=named)
    backend.enable_truncation(4)  # left over from training in many a file
    (folder / "tokenizer.json").write_text(backend.to_str(), "utf-8")
    files["tokenizer_config"] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": {"__type": "AddedToken", "content": "</s>", "special": True},
        **(config or {}),
    }
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content), "utf-8")
    return folder


def read(folder: Path) -> TokenizerSpec:
    return read_tokenizer(TokenizerSource("huggingface", folder))


@pytest.mark.parametrize("around", ["$A", "<s> $A", "<s> $A </s>", "$A </s>", "<|end|> <s> $A"])
@pytest.mark.parametrize("flag", [{}, {"add_bos_token": True}, {"add_bos_token": False}])
def test_ids_equal_transformers(tmp_path: Path, around: str, flag: dict[str, bool]) -> None:
    folder = write_folder(tmp_path, around, flag)
    ours, theirs = Tokenizer(read(folder)), AutoTokenizer.from_pretrained(folder)
    theirs.backend_tokenizer.no_truncation()
    for text in TEXTS:
        assert ours.encode(text) == theirs(text)["input_ids"]
        assert (
            ours.encode(text, add_bos=False) == theirs(text, add_special_tokens=False)["input_ids"]
        )
        ids = ours.encode(text)
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True)
        assert ours.decode(ids, skip_special=False) == theirs.decode(ids)
    assert (ours.spec.bos_id, ours.spec.eos_ids) == (theirs.bos_token_id, (theirs.eos_token_id,))
    assert ours.vocab_size == len(theirs)


@settings(
    deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(text=any_text())
def test_a_text_comes_back(tmp_path: Path, text: str) -> None:
    ours = Tokenizer(read(write_folder(tmp_path)))
    assert ours.decode(ours.encode(text)) == text


def test_tokenizer_json_is_kept_to_the_letter(tmp_path: Path) -> None:
    folder = write_folder(tmp_path)
    assert read(folder).json == (folder / "tokenizer.json").read_text("utf-8")


def test_end_tokens_are_united_with_the_generation_config(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, generation_config={"eos_token_id": [502, 501]})
    assert read(folder).eos_ids == (501, 502)
    folder = write_folder(tmp_path, generation_config={"eos_token_id": 502})
    assert read(folder).eos_ids == (501, 502)


def test_special_tokens_for_templates(tmp_path: Path) -> None:
    config = {"pad_token": None, "image_token": "<|end|>", "add_bos_token": True}
    special = {"unk_token": "<s>", "bos_token": "wrong"}
    spec = read(write_folder(tmp_path, config=config, special_tokens_map=special))
    assert spec.special_tokens == {
        "bos_token": "<s>",
        "eos_token": "</s>",
        "image_token": "<|end|>",
        "unk_token": "<s>",
    }
    assert (spec.bos_token, spec.unk_id, spec.pad_id) == ("<s>", 500, None)


def test_tokens_that_only_the_config_has_are_added(tmp_path: Path) -> None:
    extra = {"503": {"content": "<tool>", "special": False}, "502": {"content": "<|end|>"}}
    folder = write_folder(
        tmp_path, config={"added_tokens_decoder": extra}, added_tokens={"<b>": 504}
    )
    ours = Tokenizer(read(folder))
    assert ours.encode("<tool><b>") == [503, 504]
    theirs = PreTrainedTokenizerFast.from_pretrained(folder)
    assert theirs.convert_tokens_to_ids(["<tool>", "<|end|>"]) == [503, 502]


def test_templates_and_their_precedence(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, config={"chat_template": "from config"})
    assert read(folder).chat_template == "from config"
    named = [{"name": "default", "template": "one"}, {"name": "tool_use", "template": "two"}]
    folder = write_folder(tmp_path, config={"chat_template": named})
    assert read(folder).chat_template == "one"
    assert read(folder).named_templates == {"tool_use": "two"}
    (folder / "chat_template.json").write_text('{"chat_template": "from json"}')
    assert read(folder).chat_template == "from json"
    (folder / "chat_template.jinja").write_text("from file: é", "utf-8")
    assert read(folder).chat_template == "from file: é"
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "rag.jinja").write_text("three")
    assert read(folder).named_templates == {"tool_use": "two", "rag": "three"}


def test_a_prompt_of_a_template_has_one_bos(tmp_path: Path) -> None:
    config = {"chat_template": "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}"}
    folder = write_folder(tmp_path, "<s> $A", config)
    ours, theirs = Tokenizer(read(folder)), AutoTokenizer.from_pretrained(folder)
    talk = [{"role": "user", "content": "wrap"}]
    prompt = ChatTemplate(ours.spec.chat_template, ours.spec.special_tokens).render(talk)
    ids = ours.encode(prompt, add_bos=False)
    assert ids == theirs.apply_chat_template(talk, return_dict=False)
    assert ids == ours.encode(prompt)


@pytest.mark.parametrize("name", ["smollm2", "llama3_2", "qwen3", "gemma3"])
def test_real_tokenizers_equal_transformers(name: str) -> None:
    folder = shared_tokenizers() / name
    theirs = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    ours = Tokenizer(read(folder))
    wiki = shared_file("text/wiki.test.raw").read_text("utf-8")[:50_000]
    for text in [*TEXTS, wiki]:
        assert ours.encode(text) == theirs(text)["input_ids"]
    assert ours.spec.add_bos is (name in ("llama3_2", "gemma3"))
    assert ours.spec.chat_template


def test_a_missing_tokenizer_json(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"tokenizer\.json cannot be read"):
        read(tmp_path)


@pytest.mark.parametrize("text", ["{", "[]", '{"model": {"type": "Novel"}}'])
def test_a_broken_tokenizer_json(tmp_path: Path, text: str) -> None:
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(TokenizerError, match="not a usable tokenizer"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("data", "why"), [(b"{", "not valid JSON"), (b"[1]", "JSON object"), (b"\xff", "not UTF-8")]
)
def test_a_broken_tokenizer_config(tmp_path: Path, data: bytes, why: str) -> None:
    (write_folder(tmp_path) / "tokenizer_config.json").write_bytes(data)
    with pytest.raises(TokenizerError, match=why):
        read(tmp_path)


def test_an_end_token_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="'<nope>' is not in the vocabulary"):
        read(write_folder(tmp_path, config={"eos_token": "<nope>"}))


def test_an_end_id_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="token 9999, which does not exist"):
        read(write_folder(tmp_path, generation_config={"eos_token_id": 9999}))


def test_files_of_different_models(tmp_path: Path) -> None:
    config = {"added_tokens_decoder": {"7": {"content": "<|end|>"}}}
    with pytest.raises(TokenizerError, match=r"'<\|end\|>' should be 7 .* but is 502"):
        read(write_folder(tmp_path, config=config))


def test_other_tokens_around_a_text_travel_in_the_spec(tmp_path: Path) -> None:
    """GLM puts two tokens before a text and neither is its BOS."""
    spec = read(write_folder(tmp_path, "<|end|> <s> $A <|end|>"))
    assert (spec.prefix_ids, spec.suffix_ids, spec.add_bos) == ((502, 500), (502,), False)
    again = Tokenizer(TokenizerSpec.from_dict(spec.to_dict(), spec.json))
    assert again.encode("a")[:2] == [502, 500]
    assert again.encode("a", add_bos=False) == again.encode("a")[2:-1]
