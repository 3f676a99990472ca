"""Every family's text is exactly its greedy text when it is guessed."""

from __future__ import annotations

from pathlib import Path

import pytest

import satchel
from models.model_rows import ROWS, ModelRow
from satchel.benchmark.lookahead import decode
from satchel.llm.lookahead.options import LookaheadSizes
from satchel.llm.session import Session
from satchel.runtime.program import Program
from support.tiny_models import tiny_model, write_checkpoint

CONTEXT = 96


@pytest.mark.parametrize("row", ROWS, ids=[row.id for row in ROWS])
def test_the_text_is_the_greedy_one(tmp_path: Path, row: ModelRow) -> None:
    """Past every window of the table, up to the end of the context, over caches of all kinds."""
    model = tiny_model(row.model_type, **row.config)
    for name, parameter in model.named_parameters():
        if "o_proj" in name or "out_proj" in name:
            parameter.data *= 0.1  # so that the text soon repeats itself, and guesses come true
    checkpoint = write_checkpoint(tmp_path / "model", model)
    recipe, bits = [("8a8w", 8), ("fp16", 16), ("fp32", 32)][ROWS.index(row) % 3]
    recipe = "fp16" if row.config.get("hidden_size") else recipe  # it has no whole groups
    path = satchel.export(
        checkpoint, tmp_path / "a.satchel", recipe=recipe, kv_bits=bits, context=CONTEXT
    )
    session = Session(Program(path))
    prompt = [5, 6, 7, 8, 5, 6, 7]
    made = CONTEXT - len(prompt) + 1
    _, wanted, _ = decode(session, prompt, made, "off", None)
    for sizes in (LookaheadSizes(), LookaheadSizes(3, 0, 1)):  # with and without a window
        _, tokens, stats = decode(session, prompt, made, "on", sizes)
        assert tokens == wanted
        assert stats.accepted > 0
