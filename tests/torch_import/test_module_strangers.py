"""Modules as people write them: what a recommender, a detector and a volume use, and any image."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

import satchel
from satchel.errors import UnsupportedOperatorError


class TwoTowers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.user, self.items = nn.Embedding(50, 8), nn.EmbeddingBag(60, 8, mode="mean")
        self.cross = nn.Bilinear(8, 8, 4)
        self.score = nn.Sequential(nn.Linear(12, 8), nn.PReLU(), nn.Linear(8, 1))

    def forward(self, user: Tensor, items: Tensor, offsets: Tensor, dense: Tensor) -> Any:
        a, b = self.user(user), self.items(items, offsets)
        score = self.score(torch.cat([self.cross(a, b), dense], -1)).squeeze(-1)
        return {"score": score.sigmoid(), "best": (a @ b.T).topk(2).indices}


class Volume(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.ConvTranspose3d(4, 6, (2, 3, 2), 2, (1, 0, 1), (1, 0, 1), groups=2)

    def forward(self, x: Tensor) -> Any:
        pooled = F.max_pool3d(x, (2, 3, 2), 2, (1, 1, 0), ceil_mode=True, return_indices=True)
        flat = F.max_pool2d(x[:, 0], 3, 2, 1, ceil_mode=True, return_indices=True)
        normal = torch.native_layer_norm(x, [x.shape[-1]], None, None, 1e-5)
        return self.up(x), *pooled, *flat, *normal


class Head(nn.Module):
    """A grid of boxes and scores, of which those are kept that are sure enough."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 16, 3, stride=4, padding=1)

    def forward(self, image: Tensor) -> Any:
        grid = self.layer(image).unflatten(1, (2, 8)).permute(0, 1, 3, 4, 2)
        rows, columns = torch.meshgrid(torch.arange(8), torch.arange(8), indexing="ij")
        middle = (grid[..., :2].sigmoid() + torch.stack([columns, rows], -1)) * 4
        half = grid[..., 2:4].exp() * 5
        boxes = torch.cat([middle - half, middle + half], -1).reshape(-1, 4)
        scores, kinds = (grid[..., 4:5].sigmoid() * grid[..., 5:].softmax(-1)).flatten(0, 3).max(-1)
        keep = scores > 0.2
        return boxes[keep], scores[keep], kinds[keep], keep.sum()


class Viterbi(nn.Module):
    """The likeliest path through states, and back along it; some results are returned twice."""

    def __init__(self) -> None:
        super().__init__()
        self.moves = nn.Parameter(torch.randn(4, 4))

    def forward(self, scores: Tensor) -> Any:
        best, came_from = scores[0], []
        for row in scores[1:]:
            best, places = (best[:, None] + self.moves).max(0)
            best = best + row
            came_from.append(places)
        state = best.argmax(0, keepdim=True)
        path = [state]
        for places in reversed(came_from):
            state = places.gather(0, state)
            path.append(state)
        found = {"path": torch.cat(path[::-1]), "score": best.max(), "last": best, "best": best}
        return found | {"of the likeliest": scores[:, best.argmax()]}


CASES: dict[str, tuple[type[nn.Module], tuple[Any, ...]]] = {
    "recommender": (
        TwoTowers,
        (
            torch.tensor([1, 2, 3]),
            torch.arange(9) * 6,
            torch.tensor([0, 3, 5]),
            torch.linspace(-1, 1, 24).reshape(3, 8),
        ),
    ),
    "viterbi": (Viterbi, (torch.linspace(-9, 9, 24).sin().reshape(6, 4),)),
    "volume": (Volume, (torch.linspace(-999, 999, 840).sin().reshape(1, 4, 5, 6, 7),)),
    "detector": (Head, (torch.linspace(-9, 9, 3072).cos().reshape(1, 3, 32, 32) * 3,)),
}


@pytest.mark.parametrize("name", CASES)
def test_numbers_are_torchs(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    kind, inputs = CASES[name]
    module = kind().eval()
    method = satchel.load(satchel.export(module, inputs, tmp_path / "m.satchel")).method()
    with torch.no_grad():
        wanted = torch.utils._pytree.tree_leaves(module(*inputs))
    for mine, theirs in zip(method.run(*(x.numpy() for x in inputs)), wanted, strict=True):
        assert mine.shape == tuple(theirs.shape)
        np.testing.assert_allclose(mine, theirs.numpy(), 1e-4, 1e-5)


class AnyImage(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 6, 3, stride=2, padding=1)
        self.second = nn.Conv2d(6, 6, 3, padding=1, groups=3)
        self.norm = nn.GroupNorm(2, 6)

    def forward(self, x: Tensor) -> Any:
        y = F.silu(self.norm(self.first(x)))
        y = F.max_pool2d(y + F.relu6(self.second(y)), 2)
        near = F.interpolate(y, scale_factor=2.0, mode="nearest")
        return y.mean((2, 3)), near, F.interpolate(y, scale_factor=2.0, mode="bilinear")


def test_height_and_width_are_any(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = AnyImage().eval()
    sizes = {axis: torch.export.Dim(f"size_{axis}", min=8, max=64) for axis in (2, 3)}
    sizes[0] = torch.export.Dim("batch", max=4)
    example = torch.randn(2, 3, 32, 40)
    path = satchel.export(module, (example,), tmp_path / "m.satchel", dynamic_shapes=(sizes,))
    method = satchel.load(path).method()
    for shape in ((2, 3, 32, 40), (1, 3, 16, 24), (4, 3, 63, 64), (3, 3, 33, 9)):
        x = torch.randn(shape)
        with torch.no_grad():
            wanted = module(x)
        for mine, theirs in zip(method.run(x.numpy()), wanted, strict=True):
            np.testing.assert_allclose(mine, theirs.numpy(), 1e-4, 1e-5)


class OwnFilters(nn.Module):
    """Convolutions whose weights are computed, as a dynamic filter network's are."""

    def forward(self, x: Tensor, w: Tensor) -> Any:
        line = F.conv1d(x[:, :, 0], w[..., 0], padding="same", dilation=2)
        return F.conv2d(x, w.tanh(), padding="same"), line, F.conv2d(x, w * 2, dilation=(2, 1))


def test_computed_weights_keep_the_size(tmp_path: Path) -> None:
    torch.manual_seed(0)
    inputs = torch.randn(2, 3, 9, 8), torch.randn(4, 3, 4, 3)
    method = satchel.load(
        satchel.export(OwnFilters().eval(), inputs, tmp_path / "m.satchel")
    ).method()
    for mine, theirs in zip(
        method.run(*(x.numpy() for x in inputs)), OwnFilters()(*inputs), strict=True
    ):
        np.testing.assert_allclose(mine, theirs.numpy(), 1e-4, 1e-5)


class Bits(nn.Module):
    def __init__(self, kind: torch.dtype) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, x: Tensor) -> Tensor:
        return x.view(self.kind) + 0


def test_bits_as_another_type(tmp_path: Path) -> None:
    x = torch.arange(256, dtype=torch.uint8)
    path = satchel.export(Bits(torch.int8).eval(), (x,), tmp_path / "m.satchel")
    wanted = Bits(torch.int8)(x).numpy()
    np.testing.assert_array_equal(satchel.load(path).method()(x.numpy()), wanted)
    with pytest.raises(UnsupportedOperatorError, match=r"the bits of torch.float32 as torch.int32"):
        satchel.export(Bits(torch.int32).eval(), (torch.randn(5),), tmp_path / "n.satchel")
