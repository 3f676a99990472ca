"""Programs of a tiny model, exported once for all tests of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest

import satchel
from support.tiny_llm import write_tiny_llm


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llm(tmp_path_factory.mktemp("tiny") / "tiny")


@pytest.fixture(scope="session")
def hybrid_program(tiny_checkpoint: Path) -> Path:
    """Context 48 and blocks of 10: the context is not a multiple of the block."""
    output = tiny_checkpoint.parent / "hybrid.satchel"
    return satchel.export(tiny_checkpoint, output, group_size=32, context=48, prefill_ar_len=10)


@pytest.fixture(scope="session")
def kv_program(tiny_checkpoint: Path) -> Path:
    output = tiny_checkpoint.parent / "kv.satchel"
    return satchel.export(tiny_checkpoint, output, group_size=32, context=48, mode="kv")
