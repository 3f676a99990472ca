"""Tiny checkpoints and an own cache for sweeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.tiny_llm import write_tiny_llm


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llm(tmp_path_factory.mktemp("sweeps") / "tiny-llama")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SATCHEL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def tiny(checkpoint: Path) -> dict[str, Any]:
    """An experiment of one cell that takes as little time as it can."""
    return {
        "models": [str(checkpoint)],
        "recipes": ["fp16"],
        "prompts": [{"tokens": 8, "new_tokens": 4}],
        "export": {"context": 96},
        "runs": 2,
        "warmup": 0,
    }
