"""Programs for the NPU, exported once for all tests of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest

import satchel
from support.tiny_llm import write_tiny_llm

OPTIONS = {"target": "qnn:SM8750", "context": 48, "prefill_ar_len": 12}


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """One for all tests here, so that a program is compiled for the emulator once."""
    folder = tmp_path_factory.getbasetemp() / "qnn-cache"
    monkeypatch.setenv("SATCHEL_CACHE", str(folder))


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llm(tmp_path_factory.mktemp("npu") / "tiny")


@pytest.fixture(scope="session")
def npu_program(tiny_checkpoint: Path) -> Path:
    pytest.importorskip("onnxruntime_qnn", reason="pip install 'satchel[qnn]'")
    return satchel.export(tiny_checkpoint, tiny_checkpoint.parent / "hybrid.satchel", **OPTIONS)
