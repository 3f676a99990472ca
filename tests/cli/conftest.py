"""A tiny program and a cache folder of its own for the commands."""

from __future__ import annotations

from pathlib import Path

import pytest

import satchel
from support.tiny_llm import write_tiny_llm


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llm(tmp_path_factory.mktemp("cli") / "tiny-llama")


@pytest.fixture(scope="session")
def program(checkpoint: Path) -> Path:
    return satchel.export(checkpoint, checkpoint.parent / "tiny.satchel", context=96)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SATCHEL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"
