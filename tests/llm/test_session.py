"""The KV cache, as a session fills, reuses and rewinds it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from satchel.errors import ConfigError, ContextFullError, ExecutionError
from satchel.llm.session import Session
from satchel.runtime.program import Program

TOKENS = [(7 * i + 3) % 250 for i in range(48)]


def one_by_one(program: Path, tokens: list[int]) -> np.ndarray:
    session = Session(Program(program), mode="kv")
    return [session.feed([t]) for t in tokens][-1]


def test_mode_is_detected_from_the_methods(hybrid_program: Path, kv_program: Path) -> None:
    assert Session(Program(hybrid_program)).mode == "hybrid"
    assert Session(Program(kv_program)).mode == "kv"
    assert Session(Program(hybrid_program), mode="kv").mode == "kv"
    with pytest.raises(ConfigError, match=r"prefill_forward.*mode hybrid"):
        Session(Program(kv_program), mode="hybrid")


@pytest.mark.parametrize("length", [1, 2, 9, 10, 11, 20, 47, 48])
def test_blocks_give_what_single_tokens_give(hybrid_program: Path, length: int) -> None:
    """Also for the last partial block at the very end of the context (48 = 4 * 10 + 8)."""
    session = Session(Program(hybrid_program))
    logits = session.feed(TOKENS[:length])
    np.testing.assert_array_equal(logits, one_by_one(hybrid_program, TOKENS[:length]))
    assert session.position == length


def test_both_files_compute_the_same(hybrid_program: Path, kv_program: Path) -> None:
    hybrid = Session(Program(hybrid_program)).feed(TOKENS[:30])
    np.testing.assert_array_equal(hybrid, Session(Program(kv_program)).feed(TOKENS[:30]))


def test_rewind_and_continue_equals_a_fresh_session(hybrid_program: Path) -> None:
    session = Session(Program(hybrid_program))
    session.feed(TOKENS[:40])
    session.rewind(13)
    again = session.feed([1, 2, 3])
    fresh = Session(Program(hybrid_program)).feed([*TOKENS[:13], 1, 2, 3])
    np.testing.assert_array_equal(again, fresh)
    with pytest.raises(ExecutionError, match="cannot rewind"):
        session.rewind(17)


def test_common_prefix(hybrid_program: Path) -> None:
    session = Session(Program(hybrid_program))
    session.feed([5, 6, 7])
    assert session.common_prefix([5, 6, 8, 9]) == 2
    assert session.common_prefix([5, 6, 7, 9]) == 3
    assert session.common_prefix([]) == 0


def test_a_full_context_is_an_error_and_harms_nothing(hybrid_program: Path) -> None:
    session = Session(Program(hybrid_program))
    session.feed(TOKENS[:40])
    with pytest.raises(ContextFullError, match=r"9 tokens do not fit: 8 of 48 are free"):
        session.feed(TOKENS[:9])
    assert session.position == 40
    np.testing.assert_array_equal(session.feed(TOKENS[40:48]), one_by_one(hybrid_program, TOKENS))
    assert session.room == 0


def test_a_token_outside_the_vocabulary_is_an_error(hybrid_program: Path) -> None:
    session = Session(Program(hybrid_program))
    for bad in (-1, 320, 2**31 - 1):
        with pytest.raises(ExecutionError, match=f"no token {bad}"):
            session.feed([1, bad])
    assert session.position == 0


def test_slide_keeps_the_beginning_and_the_recent_half(hybrid_program: Path) -> None:
    session = Session(Program(hybrid_program))
    session.feed(TOKENS)
    logits = session.feed(session.slide(keep=4))
    assert session.tokens == [*TOKENS[:4], *TOKENS[26:]]
    fresh = Session(Program(hybrid_program)).feed(session.tokens)
    np.testing.assert_array_equal(logits, fresh)


def test_feeding_nothing_is_an_error(hybrid_program: Path) -> None:
    with pytest.raises(ExecutionError, match="no tokens"):
        Session(Program(hybrid_program)).feed([])
