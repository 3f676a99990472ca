"""The parts of a tokenizer that do not depend on where it came from."""

from __future__ import annotations

import ctypes
import gc
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest
from tokenizer_data import trained_byte_level
from tokenizers import Tokenizer as Backend
from tokenizers.models import WordLevel

from satchel.checkpoints.base import TokenizerKind, TokenizerSource
from satchel.errors import TokenizerError
from satchel.llm.tokenizer import Tokenizer, TokenizerSpec, read_tokenizer


def small_json() -> str:
    backend = Backend.from_str(trained_byte_level(r"\w+|\W"))
    backend.add_special_tokens(["<s>", "</s>"])
    return backend.to_str()


def full_spec() -> TokenizerSpec:
    return TokenizerSpec(
        json=small_json(),
        bos_token="<s>",
        bos_id=500,
        eos_ids=(501, 3),
        pad_id=501,
        unk_id=None,
        add_bos=True,
        add_eos=True,
        chat_template="{{ messages }}",
        named_templates={"rag": "{{ documents }}"},
        special_tokens={"bos_token": "<s>"},
    )


def test_a_spec_survives_json() -> None:
    spec = full_spec()
    stored = json.loads(json.dumps(spec.to_dict()))
    assert "json" not in stored
    assert TokenizerSpec.from_dict(stored, spec.json) == spec


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("bos_id", "1"),
        ("bos_id", -1),
        ("pad_id", True),
        ("unk_id", 2**40),
        ("eos_ids", 5),
        ("eos_ids", [1, None]),
        ("bos_token", 1),
        ("chat_template", ["a"]),
        ("add_bos", 1),
        ("add_eos", None),
        ("special_tokens", {"bos_token": 1}),
        ("named_templates", []),
        ("surprise", 1),
    ],
)
def test_a_damaged_spec_names_the_field(name: str, value: Any) -> None:
    with pytest.raises(TokenizerError, match=name):
        TokenizerSpec.from_dict({**full_spec().to_dict(), name: value}, "{}")


def test_bos_and_eos_are_added_once_and_on_demand() -> None:
    tokenizer = Tokenizer(full_spec())
    bare = tokenizer.encode("wrap", add_bos=False)
    assert tokenizer.encode("wrap") == [500, *bare, 501]
    assert tokenizer.encode("wrap", add_bos=True) == [500, *bare]
    assert tokenizer.encode("<s>wrap", add_bos=True) == [500, *bare]
    assert tokenizer.encode("") == [500, 501]


def test_small_questions() -> None:
    tokenizer = Tokenizer(full_spec())
    assert tokenizer.vocab_size == 502
    assert [tokenizer.is_end(one) for one in (3, 500, 501)] == [True, False, True]
    assert (tokenizer.id_of("</s>"), tokenizer.id_of("nope")) == (501, None)
    assert not tokenizer.is_text(501)
    assert tokenizer.decode([501]) == ""
    assert tokenizer.decode([501], skip_special=False) == "</s>"


def test_special_tokens_in_text_can_be_just_text() -> None:
    tokenizer = Tokenizer(full_spec())
    ids = tokenizer.encode("</s>", add_bos=False, parse_special=False)
    assert 501 not in ids
    assert tokenizer.decode(ids) == "</s>"


def test_threads_do_not_disturb_each_other() -> None:
    tokenizer = Tokenizer(full_spec())

    def count(parse: bool) -> int:
        return tokenizer.encode("a</s>" * 50, add_bos=False, parse_special=parse).count(501)

    with ThreadPoolExecutor(4) as pool:
        counts = list(pool.map(count, [True, False] * 100))
    assert counts == [50, 0] * 100


def test_text_that_is_not_unicode() -> None:
    with pytest.raises(TokenizerError, match="cannot be encoded"):
        Tokenizer(full_spec()).encode("\ud800")


def test_an_id_that_does_not_exist() -> None:
    with pytest.raises(TokenizerError, match="bos_id names token 900"):
        Tokenizer(TokenizerSpec(json=small_json(), bos_id=900))


def test_a_kind_that_does_not_exist() -> None:
    with pytest.raises(TokenizerError, match="no tokenizer of kind 'novel'"):
        read_tokenizer(TokenizerSource(cast(TokenizerKind, "novel"), Path()))


def test_modules_load_heavy_libraries_only_on_use() -> None:
    code = (
        "import sys, satchel.llm.tokenizer, satchel.llm.chat_template, satchel.llm.text_stream;"
        "print([m for m in ('tokenizers', 'jinja2', 'sentencepiece', 'torch') if m in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    )
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize("end", [-1, 2**40])
def test_an_end_token_that_cannot_be_one(end: int) -> None:
    with pytest.raises(TokenizerError, match=f"names token {end}, which does not exist"):
        Tokenizer(TokenizerSpec(json=Backend(WordLevel({"a": 0}, "a")).to_str(), eos_ids=(end,)))


class MallocCounts(ctypes.Structure):
    _fields_ = (("numbers", ctypes.c_size_t * 10),)


def test_opening_a_tokenizer_again_takes_no_memory(tmp_path: Path) -> None:
    """The library loses some with each tokenizer that encodes: see ``shared_backend``."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallinfo2"):
        pytest.skip("the system's library does not count memory")
    libc.mallinfo2.restype = MallocCounts
    spec = full_spec()
    (tmp_path / "tokenizer.json").write_text(spec.json)
    times = 200

    def open_and_encode() -> int:
        for _ in range(times):
            assert Tokenizer(spec).encode("a text", parse_special=False)
            assert read_tokenizer(TokenizerSource("huggingface", tmp_path)).json
        gc.collect()
        return int(libc.mallinfo2().numbers[7])  # uordblks: bytes in use

    before = open_and_encode()
    assert open_and_encode() - before < 100 * times
