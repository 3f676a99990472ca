"""Programs that take embeddings in place of tokens, as models that see or hear will."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import satchel
from satchel.errors import ConfigError, ExecutionError
from satchel.llm.session import Session
from satchel.runtime.program import Program, load
from support.tiny_llm import write_tiny_llm
from support.tiny_models import tiny_model, write_checkpoint

TEXT = [3, 14, 15, 9, 26, 5, 35, 8, 9, 7] * 8


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    folder = tmp_path_factory.mktemp("embeddings")
    checkpoint = write_tiny_llm(folder / "tiny")
    options = {"group_size": 32, "context": 160, "prefill_ar_len": 70, "embeddings": True}
    return load(satchel.export(checkpoint, folder / "p.satchel", **options))


def test_what_tokens_become_is_what_they_are(program: Program) -> None:
    """The same bits, in one go, mixed, and behind a fork."""
    plain, embedded = Session(program), Session(program)
    want = plain.feed(TEXT)
    np.testing.assert_array_equal(embedded.feed_embeddings(embedded.embed(TEXT)), want)
    np.testing.assert_array_equal(embedded.feed([1]), plain.feed([1]))
    mixed = Session(program)
    mixed.feed(TEXT[:64])
    np.testing.assert_array_equal(mixed.feed_embeddings(mixed.embed(TEXT[64:])), want)
    again = embedded.fork(64)
    np.testing.assert_array_equal(again.feed(TEXT[64:]), want)


@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma2", "gemma3_text", "phi3"])
def test_as_transformers_does(family: str, tmp_path: Path) -> None:
    """Rows that are no token's, between tokens."""
    model = tiny_model(family, pad_token_id=0)
    path = write_checkpoint(tmp_path / family, model)
    options = {"recipe": "fp32", "context": 64, "embeddings": True}
    session = Session(load(satchel.export(path, tmp_path / "p.satchel", **options)))
    before, after = session.embed([1, 2, 3]), session.embed([4, 5])
    picture = np.random.default_rng(1).standard_normal((7, before.shape[1])).astype(np.float32)
    picture *= before.std()
    session.feed([1, 2, 3])
    session.feed_embeddings(picture)
    got = session.feed([4, 5])
    rows = np.concatenate([before, picture, after])
    with torch.no_grad():
        want = model(inputs_embeds=torch.from_numpy(rows)[None]).logits[0, -1].numpy()
    np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-4)


def test_rows_are_told_apart_by_content(program: Program) -> None:
    session = Session(program)
    width = session.embed([1]).shape[1]
    picture = np.random.default_rng(0).standard_normal((5, width)).astype(np.float32)
    picture[3] = picture[1]
    session.feed_embeddings(picture)
    numbers = session.tokens
    assert all(n < 0 for n in numbers) and numbers[3] == numbers[1]
    assert len(set(numbers)) == 4
    other = Session(program, instance=session.instance)
    other.feed_embeddings(picture + 1)
    assert other.common_prefix(numbers) == 0 and session.common_prefix(numbers) == 5


def test_a_program_without(tmp_path: Path, hybrid_program: Path, tiny_checkpoint: Path) -> None:
    session = Session(load(hybrid_program))
    with pytest.raises(ConfigError, match="takes no embeddings"):
        session.feed_embeddings(np.zeros((1, 64), np.float32))
    for options in ({"mode": "kv"}, {"rotate": True}):
        with pytest.raises(ConfigError, match="embeddings"):
            satchel.export(tiny_checkpoint, tmp_path / "x.satchel", embeddings=True, **options)


def test_wrong_shapes(program: Program) -> None:
    session = Session(program)
    with pytest.raises(ExecutionError, match="n, hidden"):
        session.feed_embeddings(np.zeros(64, np.float32))
    with pytest.raises(ExecutionError, match="embedded"):
        session.feed_embeddings(np.zeros((2, 7), np.float32))
