"""Encoders of transformers whose batch and length are symbolic: its own numbers at every size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

import satchel
from support.compare import assert_close

SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "vocab_size": 100,
    "max_position_embeddings": 80,
}
ENCODERS: dict[str, dict[str, Any]] = {
    "bert": SIZES,
    "mpnet": {**SIZES, "pad_token_id": 1},
    "modernbert": {
        **SIZES,
        "global_attn_every_n_layers": 2,
        "local_attention": 8,
        **dict.fromkeys(["pad_token_id", "cls_token_id", "sep_token_id"], 1),
        **dict.fromkeys(["bos_token_id", "eos_token_id"], 1),
    },
}


class Encoder(nn.Module):
    def __init__(self, model_type: str) -> None:
        import transformers

        super().__init__()
        config = transformers.AutoConfig.for_model(model_type, **ENCODERS[model_type])
        self.model = transformers.AutoModel.from_config(config)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        states: Tensor = self.model(input_ids=ids, attention_mask=mask).last_hidden_state
        return states


def example(batch: int, length: int) -> tuple[Tensor, Tensor]:
    """Texts of which each is shorter than the one before it."""
    lengths = torch.arange(length, length - batch, -1).clamp(min=1)
    mask = (torch.arange(length) < lengths[:, None]).long()
    return torch.randint(2, 100, (batch, length)), mask


@pytest.mark.parametrize("model_type", ENCODERS)
def test_encoders_take_any_batch_and_length(model_type: str, tmp_path: Path) -> None:
    torch.manual_seed(3)
    module = Encoder(model_type).eval()
    sizes = {0: Dim("batch", min=2, max=4), 1: Dim("length", min=2, max=64)}
    path = satchel.export(
        module, example(2, 8), tmp_path / "m.satchel", dynamic_shapes=(sizes, sizes)
    )
    method = satchel.load(path).method()
    for batch, length in ((2, 8), (1, 3), (4, 37), (3, 64)):
        ids, mask = example(batch, length)
        with torch.no_grad():
            wanted = module(ids, mask).numpy()
        kept = mask.bool().numpy()
        assert_close(method(ids.numpy(), mask.numpy())[kept], wanted[kept], 1e-4)


class Heads(nn.Module):
    """What lies between two symbolic sizes is joined and split again."""

    def forward(self, x: Tensor) -> Tensor:
        batch, _, _, length, width = x.shape
        joined = x.reshape(batch, 4, length, width)
        return joined.transpose(1, 2).reshape(batch, length, 2, 2 * width)


def test_sizes_between_symbolic_ones_are_joined_and_split(tmp_path: Path) -> None:
    sizes = {0: Dim("batch", min=2, max=4), 3: Dim("length", min=2, max=9)}
    x = torch.randn(2, 2, 2, 5, 6)
    path = satchel.export(Heads().eval(), (x,), tmp_path / "m.satchel", dynamic_shapes=(sizes,))
    method = satchel.load(path).method()
    for batch, length in ((2, 5), (1, 9), (4, 1)):
        x = torch.randn(batch, 2, 2, length, 6)
        np.testing.assert_array_equal(method(x.numpy()), Heads()(x).numpy())


class Padded(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.pad(x, (1, 2, 0, 1), value=float("-inf"))


def test_padding_with_infinity(tmp_path: Path) -> None:
    x = torch.randn(2, 3)
    path = satchel.export(Padded().eval(), (x,), tmp_path / "m.satchel")
    np.testing.assert_array_equal(satchel.load(path).method()(x.numpy()), Padded()(x).numpy())
