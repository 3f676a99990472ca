"""Attention in which some queries see no key at all: torch gives 0."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

import satchel
from support.compare import assert_close


class Masked(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        given = mask
        if self.kind != "bool":
            given = torch.zeros_like(q @ k.transpose(-1, -2)).masked_fill(~mask, -torch.inf)
        return F.scaled_dot_product_attention(q, k, v, given)


@pytest.mark.parametrize("kind", ["bool", "float"])
@pytest.mark.parametrize("shape", [(7, 4), (3, 7, 4), (2, 3, 7, 4), (2, 1, 3, 7, 4)])
@pytest.mark.parametrize("keys", [7, 1100])
def test_a_row_that_is_masked_as_a_whole_gives_0(
    kind: str, shape: tuple[int, ...], keys: int, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    q = torch.randn(shape)
    k, v = torch.randn(*shape[:-2], keys, 4), torch.randn(*shape[:-2], keys, 4)
    mask = torch.rand(7, keys) > 0.4
    mask[2] = mask[5] = False
    inputs = (q, k, v, mask)
    module = Masked(kind).eval()
    wanted = module(*inputs).numpy()
    assert (wanted[..., 2, :] == 0).all()
    path = satchel.export(module, inputs, tmp_path / "x.satchel")
    got = satchel.load(path).method()(*(x.numpy() for x in inputs))
    assert_close(got, wanted, 1e-5)


class Twice(nn.Module):
    """Two layers of attention with one mask, as in an encoder."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        seen = mask[:, None, None, :].bool()
        once = F.scaled_dot_product_attention(x, x, x, seen)
        return F.scaled_dot_product_attention(once, x, once, seen)


def test_layers_that_share_a_mask_share_its_bias(tmp_path: Path) -> None:
    torch.manual_seed(0)
    inputs = (torch.randn(2, 3, 7, 4), torch.ones(2, 7, dtype=torch.int64))
    inputs[1][1, 4:] = 0
    path = satchel.export(Twice().eval(), inputs, tmp_path / "x.satchel")
    program = satchel.load(path)
    ops = program.methods[0]["ops"]
    assert (ops["attention_full"], ops["where"]) == (2, 1)
    assert_close(program.method()(*(x.numpy() for x in inputs)), Twice()(*inputs).numpy(), 1e-5)


class Constant(nn.Module):
    """One layer makes queries, keys and values, so that attention becomes one op."""

    def __init__(self, safe: bool) -> None:
        super().__init__()
        self.safe = safe
        self.qkv = nn.Linear(8, 24)
        mask = torch.zeros(5, 5)
        mask[3] = -torch.inf
        mask[0, 1:] = -torch.inf
        self.register_buffer("mask", mask)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).view(1, 5, 3, 2, 4).permute(2, 0, 3, 1, 4)
        if self.safe:
            return F.scaled_dot_product_attention(q, k, v, self.mask)
        return torch.softmax(q @ k.transpose(-1, -2) * 0.5 + self.mask, -1) @ v


@pytest.mark.parametrize("safe", [True, False])
def test_a_constant_mask_means_the_same(safe: bool, tmp_path: Path) -> None:
    """Written out with softmax, torch gives NaN for such a row; as attention, 0."""
    torch.manual_seed(3)
    module, x = Constant(safe).eval(), torch.randn(1, 5, 8)
    with torch.no_grad():
        wanted = module(x).numpy()
    path = satchel.export(module, (x,), tmp_path / "x.satchel")
    got = satchel.load(path).method()(x.numpy())
    np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted))
    assert_close(np.nan_to_num(got), np.nan_to_num(wanted), 1e-5)


def test_such_rows_can_be_calibrated(tmp_path: Path) -> None:
    torch.manual_seed(3)
    module, x = Constant(True).eval(), torch.randn(1, 5, 8)
    with torch.no_grad():
        wanted = module(x).numpy()
    path = satchel.export(module, (x,), tmp_path / "x.satchel", recipe="int8", calibration=[x])
    got = satchel.load(path).method()(x.numpy())
    assert (got[..., 3, :] == 0).all()
    assert np.abs(got - wanted).max() < 0.1
