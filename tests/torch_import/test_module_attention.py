"""Attention that a module writes out becomes one op, and moves of rows around it vanish."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import satchel
from satchel.graph.passes import origins
from support.compare import assert_close

MOVES = ("transpose", "take", "slice", "concat")


class ShiftedWindows(nn.Module):
    """A block of Swin: rolled, in windows of 3 × 3, with a mask that differs by window."""

    def __init__(self, heads: int = 2, size: int = 4) -> None:
        super().__init__()
        width = heads * size
        self.heads, self.size = heads, size
        self.norm, self.qkv = nn.LayerNorm(width), nn.Linear(width, 3 * width)
        self.out, self.bias = nn.Linear(width, width), nn.Parameter(torch.randn(heads, 9, 9))
        kinds = torch.tensor([0, 1, 2, 3])
        mask = torch.where(torch.randn(4, 9, 9) > 0.5, -100.0, 0.0)
        self.register_buffer("mask", mask[kinds])

    def forward(self, x: Tensor) -> Tensor:
        n, h, w, c = x.shape
        y = torch.roll(self.norm(x), (-1, -1), (1, 2))
        y = y.view(n, h // 3, 3, w // 3, 3, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 9, c)
        qkv = self.qkv(y).reshape(len(y), 9, 3, self.heads, self.size).permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0] * self.size**-0.5, qkv[1], qkv[2]
        scores = q @ k.transpose(-2, -1) + self.bias
        scores = scores.view(n, 4, self.heads, 9, 9) + self.mask[None, :, None]
        y = scores.view(-1, self.heads, 9, 9).softmax(-1) @ v
        y = self.out(y.transpose(1, 2).reshape(len(y), 9, c))
        y = y.view(n, h // 3, w // 3, 3, 3, c).permute(0, 1, 3, 2, 4, 5).reshape(n, h, w, c)
        return x + torch.roll(y, (1, 1), (1, 2))


class SeparateLayers(nn.Module):
    """Queries, keys and values of layers of their own, scaled after the product, as in BERT."""

    def __init__(self, heads: int = 3) -> None:
        super().__init__()
        self.heads = heads
        self.layers = nn.ModuleList(nn.Linear(12, 12) for _ in range(4))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        parts = [layer(s) for layer, s in zip(self.layers, (x, y, y), strict=False)]
        q, k, v = (p.unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in parts)
        weights = torch.softmax(q @ k.transpose(2, 3) / 2.0, dim=-1)
        return self.layers[3]((weights @ v).transpose(1, 2).flatten(2))


class OneImage(nn.Module):
    """Without a batch, and in products of three dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(8, 24, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).view(5, 3, 2, 4).permute(1, 2, 0, 3)
        return (torch.bmm(q, 0.3 * k.transpose(1, 2)).softmax(2) @ v).transpose(0, 1)


class AlsoShown(OneImage):
    """What the windows are made of is read by others as well."""

    def forward(self, x: Tensor) -> Tensor:
        turned = x.flip(0)
        parts = self.qkv(turned)
        q, k, v = parts.view(5, 3, 2, 4).permute(1, 2, 0, 3)
        out = ((q @ k.transpose(1, 2)).softmax(2) @ v).transpose(0, 1).flatten(1)
        return out + parts[:, :8]


class PatchMerging(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(12)

    def forward(self, x: Tensor) -> Tensor:
        corners = [x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)]
        return self.norm(torch.cat(corners, -1))


@dataclass
class Case:
    module: Callable[[], nn.Module]
    shapes: tuple[tuple[int, ...], ...]
    ops: dict[str, int]  # that are there, and no other move of rows


CASES = [
    Case(ShiftedWindows, ((1, 6, 6, 8),), {"attention_qkv": 1, "linear": 2}),
    Case(lambda: ShiftedWindows(3, 5), ((2, 6, 6, 15),), {"attention_qkv": 1, "linear": 2}),
    # As many heads as tokens, so that no shape tells them apart.
    Case(SeparateLayers, ((2, 3, 12), (2, 3, 12)), {"attention_full": 1, "linear": 4}),
    Case(SeparateLayers, ((2, 5, 12), (2, 7, 12)), {"attention_full": 1, "linear": 4}),
    Case(OneImage, ((5, 8),), {"attention_qkv": 1, "linear": 1}),
    Case(AlsoShown, ((5, 8),), {"attention_qkv": 1, "linear": 1, "take": 1, "slice": 1}),
    Case(PatchMerging, ((1, 4, 6, 3),), {"take": 1, "layer_norm": 1}),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.module.__name__}_{c.shapes[0]}")
def test_attention_is_one_op_and_rows_stay(case: Case, tmp_path: Path) -> None:
    torch.manual_seed(1)
    module = case.module().eval()
    inputs = tuple(torch.randn(*shape) for shape in case.shapes)
    path = satchel.export(module, inputs, tmp_path / "x.satchel")
    program = satchel.load(path)
    with torch.no_grad():
        want = module(*inputs).numpy()
    assert_close(program.method()(*(x.numpy() for x in inputs)), want, 1e-4)
    found = program.methods[0]["ops"]
    assert {op: found.get(op, 0) for op in case.ops} == case.ops
    if "attention_qkv" in case.ops or "attention_full" in case.ops:
        assert "softmax" not in found
        assert not any(op in found for op in MOVES if op not in case.ops), found


def test_the_same_is_found_where_little_is_kept_in_mind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of large graphs, where elements come from is forgotten and found again."""
    monkeypatch.setattr(origins, "MOST_KEPT", 1)
    for case in CASES:
        folder = tmp_path / str(CASES.index(case))
        folder.mkdir()
        test_attention_is_one_op_and_rows_stay(case, folder)
