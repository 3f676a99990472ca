"""Longformer and LED: tokens that all see, whatever their number, against transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import satchel

transformers = pytest.importorskip("transformers")

SMALL = {"vocab_size": 60, "max_position_embeddings": 64, "pad_token_id": 1}
SIZES = {
    "longformer": {
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "attention_window": [8, 4],
    },
    "led": {
        "d_model": 16,
        "encoder_layers": 2,
        "decoder_layers": 1,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "encoder_ffn_dim": 24,
        "decoder_ffn_dim": 24,
        "attention_window": [8, 4],
        "max_encoder_position_embeddings": 64,
    },
}


class Last(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        config = transformers.AutoConfig.for_model(kind, **SMALL, **SIZES[kind])
        config.update({"use_cache": False})
        self.model = transformers.AutoModel.from_config(config)
        self.more = {"decoder_input_ids": torch.arange(5)[None]} if kind == "led" else {}

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, everywhere: torch.Tensor) -> Any:
        more = {name: ids[:, :5] + given * 0 for name, given in self.more.items()}
        made = self.model(ids, attention_mask=mask, global_attention_mask=everywhere, **more)
        return made.last_hidden_state


@pytest.mark.parametrize("kind", SIZES)
@pytest.mark.parametrize("texts", [1, 2])
def test_any_number_of_tokens_is_global(kind: str, texts: int, tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = Last(kind).eval()
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.3)
    ids, mask = torch.randint(2, 60, (texts, 21)), torch.ones(texts, 21, dtype=torch.int64)
    mask[-1, 17:] = 0
    first = torch.zeros_like(mask)
    first[:, 0] = 1
    method = satchel.load(
        satchel.export(module, (ids, mask, first), tmp_path / "m.satchel")
    ).method()
    one = torch.zeros_like(mask)
    one[-1, 7] = 1
    for everywhere in (first, torch.zeros_like(mask), one, (ids % 3 == 0).long(), mask):
        given = (ids, mask, everywhere)
        with torch.no_grad():
            wanted = module(*given).numpy()
        made = method(*(x.numpy() for x in given))
        np.testing.assert_allclose(made, wanted, 1e-4, 2e-5)
