"""Texts, and the optional data of ../shared, for the tests of this folder."""

from __future__ import annotations

import tarfile
import tempfile
from functools import cache
from pathlib import Path

import pytest
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data"

TEXTS = [
    "",
    " ",
    "Hello, world!",
    "  two  spaces  inside and at both ends  ",
    "line\nline\n\n\nline\r\n\ttab\t\n",
    "It's 2024: 12345 + 67 = 12412, isn't it? WE'LL see.",
    "naïve café, Ångström, Straße, e\u0301 composed",
    "日本語のテキスト、中文文本, 한국어 텍스트",
    "Привет, мир! Γειά σου. שלום עולם. مرحبا بالعالم",
    "emoji: 😀👩‍👩‍👧‍👦🇫🇷👍🏽 and maths ∑∫√π",
    "def f(x):\n    return x**2  # code\n",
    "zero\u200bwidth\u00a0nbsp\u3000wide \ufeff",
]


@cache
def _unpacked() -> tempfile.TemporaryDirectory[str]:
    folder = tempfile.TemporaryDirectory(prefix="satchel-tokenizers-")
    with tarfile.open(SHARED / "tokenizers.tar.xz") as archive:
        archive.extractall(folder.name, filter="data")
    return folder


def shared_tokenizers() -> Path:
    """The folder of real tokenizers, or a skip."""
    if not (SHARED / "tokenizers.tar.xz").is_file():
        pytest.skip("real tokenizers (../shared/data/tokenizers.tar.xz) are not here")
    return Path(_unpacked().name) / "tokenizers"


def shared_file(name: str) -> Path:
    """A file under ../shared/data, or a skip."""
    path = SHARED / name
    if not path.is_file():
        pytest.skip(f"../shared/data/{name} is not here")
    return path


@cache
def training_lines() -> tuple[str, ...]:
    """Enough English, code and Unicode to train a small tokenizer on."""
    import textwrap

    lines = Path(textwrap.__file__).read_text("utf-8").splitlines()
    return (*(line for line in lines if line.strip()), *(text for text in TEXTS if text.strip()))


def any_text() -> st.SearchStrategy[str]:
    """Texts of words, odd characters and white space, in any order."""
    pieces = [" ", "  ", "\n", "\t", "\r\n", "the", "wrap", "ing", "12", "'s", "!", "▁", "é", "ß"]
    pieces += [
        "日本",
        "语",
        "😀",
        "👍🏽",
        "\u0301",
        "Щ",
        "ע",
        "\u3000",
        "ﬁ",
        "１",
        "\x00",
        "\U0010ffff",
    ]
    return st.lists(st.sampled_from(pieces) | st.characters(codec="utf-8"), max_size=20).map(
        "".join
    )


@cache
def trained_byte_level(pattern: str, size: int = 500) -> str:
    """The JSON of a byte-level BPE tokenizer, trained here on a split by ``pattern``."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(training_lines(), trainer)
    return tokenizer.to_str()
