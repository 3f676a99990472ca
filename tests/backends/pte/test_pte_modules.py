"""Modules as .pte files give in ExecuTorch's runtime what they give in PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import satchel
from satchel.errors import UnsupportedOperatorError
from support.mobilenet_v3 import MobileNetV3Small


class Images(nn.Module):
    """Convolutions of all kinds, pooling, squeeze and excitation, and what moves images."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16))
        self.deep = nn.Conv2d(16, 16, 5, padding=2, groups=16)
        self.grouped = nn.Conv2d(16, 32, 3, padding=2, dilation=2, groups=4)
        self.point, self.squeeze = nn.Conv2d(32, 32, 1), nn.Conv2d(32, 32, 1)
        self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.hardswish(self.deep(functional.relu(self.stem(x))))
        x = functional.max_pool2d(functional.relu6(self.grouped(x)), 3, 2, 1)
        y = self.point(x)
        gate = functional.hardsigmoid(self.squeeze(functional.adaptive_avg_pool2d(y, 1)))
        x = x + functional.silu(y * gate)
        x = torch.cat([functional.avg_pool2d(x, 2), functional.avg_pool2d(-x, 2)], 1)[:, 16:48]
        x = functional.pad(x, (1, 0, 0, 1)).mean((2, 3))
        return functional.gelu(self.head(self.norm(x))).softmax(-1)


class Patches(nn.Module):
    """A layer of a vision transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.places = nn.Conv2d(3, 32, 8, 8), nn.Parameter(torch.randn(1, 16, 32))
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, activation="gelu")
        self.head = nn.Linear(32, 5)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2) + self.places
        return self.head(self.layer(tokens)[:, 0])


CASES = {
    "images": (Images, (1, 3, 33, 35)),
    "patches": (Patches, (1, 3, 32, 32)),
    "mobilenet_v3": (lambda: MobileNetV3Small(10), (1, 3, 64, 64)),
}


@pytest.mark.parametrize("name", CASES)
def test_floats_are_those_of_torch(tmp_path: Path, open_pte: Any, name: str) -> None:
    make, shape = CASES[name]
    torch.manual_seed(0)
    module, x = make().eval(), torch.randn(shape)
    path = satchel.export(module, (x,), tmp_path / "m.pte", target="executorch")
    got = torch.tensor(open_pte(path).forward(x.numpy()))
    with torch.no_grad():
        torch.testing.assert_close(got, module(x), atol=1e-5, rtol=1e-4)


def test_what_has_no_form_is_named(tmp_path: Path, open_pte: Any) -> None:
    class Sorted(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.sort(-1).values

    class Counted(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return functional.avg_pool2d(x, 3, 2, 1)

    with pytest.raises(UnsupportedOperatorError, match="argsort"):
        x = torch.randn(2, 8)
        satchel.export(Sorted().eval(), (x,), tmp_path / "m.pte", target="executorch")
    with pytest.raises(UnsupportedOperatorError, match="counts its padding"):
        x = torch.randn(1, 4, 9, 9)
        satchel.export(Counted().eval(), (x,), tmp_path / "m.pte", target="executorch")
