"""Vectors of texts against transformers' hidden states."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import satchel
from satchel import LLM
from satchel.errors import ConfigError
from satchel.llm.text_vectors import text_vector
from support.tiny_llm import write_tiny_llm
from support.tiny_models import tiny_model, write_checkpoint


@pytest.mark.parametrize("pooling", ["last", "mean"])
@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma", "gemma3_text", "granite"])
def test_as_transformers_has_them(family: str, pooling: str, tmp_path: Path) -> None:
    model = tiny_model(family, pad_token_id=0)
    path = write_checkpoint(tmp_path / family, model)
    options = {"recipe": "fp32", "context": 96, "prefill_ar_len": 16, "pooling": pooling}
    llm = LLM(satchel.export(path, tmp_path / "p.satchel", **options))
    tokens = [3, 14, 15, 9, 26, 5, 35, 8] * 5
    steps, count = text_vector(llm.sessions, tokens), 0
    while True:
        try:
            next(steps)
            count += 1
        except StopIteration as end:
            got = end.value
            break
    assert count == 3  # blocks of 16 tokens
    with torch.no_grad():
        states = model(torch.tensor([tokens]), output_hidden_states=True).hidden_states[-1][0]
    want = states[-1] if pooling == "last" else states.mean(0)
    np.testing.assert_allclose(got, (want / want.norm()).numpy(), atol=2e-5)


def test_texts_and_what_has_no_vectors(tmp_path: Path) -> None:
    checkpoint = write_tiny_llm(tmp_path / "tiny")
    program = satchel.export(checkpoint, tmp_path / "v.satchel", context=64, pooling="last")
    llm = LLM(program)
    one, other = llm.embed("a river"), llm.embed("a lake")
    assert abs(np.linalg.norm(one) - 1) < 1e-5 and not np.allclose(one, other)
    np.testing.assert_array_equal(llm.embed("a river"), one)
    assert llm.generate("a", raw=True, max_new_tokens=3).finish().text
    plain = LLM(satchel.export(checkpoint, tmp_path / "p.satchel", context=64))
    with pytest.raises(ConfigError, match="gives no embeddings"):
        plain.embed("x")
    with pytest.raises(ConfigError, match="rotate"):
        satchel.export(checkpoint, tmp_path / "r.satchel", pooling="last", rotate=True)
    with pytest.raises(ConfigError, match="kv mode"):
        satchel.export(checkpoint, tmp_path / "k.satchel", pooling="last", mode="kv")
