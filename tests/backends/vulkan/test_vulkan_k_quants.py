"""K-quants as programs for the CPU have them: whole models of them run on a device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import satchel
from exporter.test_export_k_quants import random_model
from models.family_check import CONTEXT, TOKENS
from satchel.llm.session import Session
from satchel.runtime.program import Program
from support.compare import relative_difference
from support.tiny_models import logits_of

__all__ = ["random_model"]  # a fixture
KINDS = ["q5_0", "q5_1", "q4_k", "q5_k", "q6_k"]


def fed(program: Path, sizes: list[int]) -> tuple[Session, Any]:
    """The logits behind steps of so many tokens."""
    session, at, tokens = Session(Program(program, target="vulkan")), 0, TOKENS.tolist()
    rows = []
    for size in sizes:
        rows.append(session.feed(tokens[at : at + size]).copy())
        at += size
    return session, np.stack(rows)


@pytest.mark.parametrize("random_model", KINDS, indirect=True)
def test_models_run_there_whole(
    random_model: tuple[str, Path, Any], tmp_path: Path, device: dict[str, Any]
) -> None:
    """With transformers' logits; and a token has the same bits alone and in a block."""
    _, gguf, model = random_model
    options = {"kv_bits": 32, "context": CONTEXT, "prefill_ar_len": 32}
    program = satchel.export(gguf, tmp_path / "m.satchel", recipe="keep", **options)
    assert len(TOKENS) > 12
    session, alone = fed(program, [1] * len(TOKENS))
    assert {part.executor for part in session.instance.parts} == {"vulkan"}
    assert not session.instance.refusals
    assert relative_difference(alone, logits_of(model, TOKENS)) < 2e-3
    rest = len(TOKENS) - 11
    for sizes in ([3, 8, rest], [11, rest], [len(TOKENS)]):
        np.testing.assert_array_equal(fed(program, sizes)[1][-1], alone[-1])
