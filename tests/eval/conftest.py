"""A tiny model, its programs, a text, and a cache folder of its own for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

import satchel
from support.tiny_llm import write_tiny_llm

WORDS = "the quick brown fox jumps over a lazy dog while seven wizards make toxic brew".split()


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llm(tmp_path_factory.mktemp("eval") / "tiny-llama")


@pytest.fixture(scope="session")
def program(checkpoint: Path) -> Path:
    output = checkpoint.parent / "tiny.satchel"
    return satchel.export(checkpoint, output, context=64, prefill_ar_len=10)


@pytest.fixture(scope="session")
def text(checkpoint: Path) -> Path:
    """A few hundred bytes, each a token; no two windows alike."""
    path = checkpoint.parent / "text.txt"
    path.write_text(" ".join(WORDS[i * i % len(WORDS)] for i in range(80)), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def likely_text(checkpoint: Path) -> Path:
    """What the float model itself would write, so that any change makes it less likely.

    Windows of 64 tokens, each a printable character and what follows it greedily.
    """
    output = checkpoint.parent / "float.satchel"
    llm = satchel.LLM(satchel.export(checkpoint, output, recipe="fp32", context=64))
    printable = [llm.tokenizer.encode(chr(code))[0] for code in range(ord("!"), ord("~"))]
    written = ""
    for start in printable[:3]:
        llm.session.rewind(0)
        tokens = [start]
        while len(tokens) < 64:
            logits = llm.session.feed(tokens[-1:])
            tokens.append(printable[int(logits[printable].argmax())])
        written += llm.tokenizer.decode(tokens)
    path = checkpoint.parent / "likely.txt"
    path.write_text(written, encoding="utf-8")
    return path


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SATCHEL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"
