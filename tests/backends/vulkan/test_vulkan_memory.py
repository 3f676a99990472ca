"""What a program takes of a device's memory, beside its weights."""

from __future__ import annotations

from typing import Any

import pytest

import satchel
from satchel.runtime.program import Instance, Program
from support.tiny_models import tiny_model, write_checkpoint

ROWS, VOCABULARY = 256, 4096


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    """A vocabulary that makes the logits of all tokens of a block larger than all the rest."""
    folder = tmp_path_factory.mktemp("memory")
    model = tiny_model(
        "qwen3",
        vocab_size=VOCABULARY,
        tie_word_embeddings=True,
        max_position_embeddings=ROWS,
    )
    return Program(
        satchel.export(
            write_checkpoint(folder / "tiny", model),
            folder / "p.satchel",
            recipe="8da4w",
            context=ROWS,
            prefill_ar_len=ROWS,
            mode="lookahead",
        ),
        target="vulkan",
    )


def opened(program: Program, monkeypatch: pytest.MonkeyPatch) -> Instance:
    monkeypatch.setenv("SATCHEL_VULKAN_WITHOUT", "host_memory,turns")
    return program.instance()


def test_logits_that_nobody_asks_for_take_no_memory(
    program: Program, device: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = opened(program, monkeypatch)
    prefill = instance.method("prefill_forward")
    tokens, places = list(range(ROWS)), list(range(ROWS))
    taken = []
    for rows in ([ROWS - 1], list(range(ROWS)), [ROWS - 1]):
        logits = prefill.run(tokens, places, rows, [0] * ROWS)[0]
        assert logits.shape == (len(rows), VOCABULARY)
        taken.append(instance.device_memory)
    all_of_them = ROWS * VOCABULARY * 4
    assert taken[1] - taken[0] > 0.9 * all_of_them
    assert taken[2] == taken[1]  # it is there for the next time


def test_weights_of_several_methods_are_there_once(
    program: Program, device: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four methods read them, and two layers the embedding: they are not far from the file."""
    weights = sum(w["codes_size"] + w["scales_size"] for w in program.weights)
    states = 1 << 20  # pages of caches as they begin, and values of no tokens
    ring = 3 * (16 << 20)  # by which weights are sent
    instance = opened(program, monkeypatch)
    assert weights < instance.device_memory < 1.1 * weights + states + ring
