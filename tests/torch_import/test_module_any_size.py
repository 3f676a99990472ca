"""Operators of a batch of any size, and of images and lines of any: as torch computes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

import satchel


class Function(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x)


def compare(
    module: nn.Module, sizes: dict[int, Any], shapes: Sequence[Sequence[int]], folder: Path
) -> None:
    """The module is exported with the first of the shapes, and called with all."""
    torch.manual_seed(0)
    example = torch.randn(*shapes[0])
    path = satchel.export(module, (example,), folder / "m.satchel", dynamic_shapes=(sizes,))
    method = satchel.load(path).method()
    for shape in shapes:
        x = torch.randn(*shape)
        with torch.no_grad():
            wanted = torch.utils._pytree.tree_leaves(module(x))
        for mine, theirs in zip(method.run(x.numpy()), wanted, strict=True):
            assert mine.shape == tuple(theirs.shape)
            np.testing.assert_allclose(mine, theirs.numpy(), 1e-4, 2e-5)


def deformed(x: Tensor) -> Tensor:
    """Each pixel is seen at a place that is computed from it."""
    rows, columns = (torch.arange(size) / (size - 1) * 2 - 1 for size in x.shape[2:])
    grid = torch.stack(torch.meshgrid(columns, rows, indexing="xy"), -1)
    return F.grid_sample(x, grid + x.mean(1)[..., None] / 9, align_corners=True)


def turned(x: Tensor) -> Tensor:
    matrix = torch.tensor([[0.9, -0.1, 0.0], [0.1, 0.9, 0.2]])[None].repeat(x.shape[0], 1, 1)
    grid = F.affine_grid(matrix, list(x.shape), align_corners=False)
    return F.grid_sample(x, grid, padding_mode="reflection", align_corners=False)


def bags(x: Tensor) -> Any:
    ids, table = (x.abs() * 3).long().clamp(max=9), torch.arange(40.0).view(10, 4).sin()
    offsets = torch.arange(x.shape[0]) * 2
    made = [F.embedding_bag(ids, table, mode=mode) for mode in ("sum", "mean", "max")]
    return [*made, F.embedding_bag(ids.flatten(), table, offsets, padding_idx=1)]


def of_matrices(x: Tensor) -> Any:
    a = x @ x.mT + torch.eye(4)
    return torch.linalg.inv(a), torch.linalg.solve(a, x), torch.linalg.cholesky(a)


def put(x: Tensor) -> Tensor:
    rows, best = torch.arange(x.shape[0]), x[:, :, 0].argmax(1)
    made = x.index_put((rows, best), torch.tensor(0.0))
    return made.index_put((rows[:, None], torch.tensor([[0, 3]])), x[:, :2], accumulate=True)


def repeated(x: Tensor) -> Any:
    count = x.shape[0]
    mean = x.mean(0, keepdim=True)
    return mean.repeat(count, 1, 1), torch.ones(2, 3).repeat(count, 2), x.repeat(1, 2, 1)


def chosen(x: Tensor) -> Tensor:
    return x[torch.arange(x.shape[0])[:, None], x[:, :, 0].topk(3).indices]


def experts(x: Tensor) -> Tensor:
    """Two of four matrices for each row, by what it scores."""
    score = torch.linspace(-9, 9, 24).sin().view(6, 4)
    matrices = torch.linspace(-99, 99, 120).sin().view(4, 6, 5)
    weights, numbers = (x @ score).softmax(-1).topk(2)
    return torch.einsum("nd,nkde,nk->ne", x, matrices[numbers], weights)


def places(x: Tensor) -> Any:
    pooled, numbers = F.max_pool2d(x, 2, return_indices=True)
    return numbers, F.max_unpool2d(pooled, numbers, 2), F.adaptive_max_pool2d(x, (3, 2), True)


BATCHES: dict[str, tuple[nn.Module | Callable[[Tensor], Any], Sequence[int]]] = {
    "conv3d": (nn.Conv3d(2, 4, 3, stride=2, padding=1, groups=2), (2, 5, 5, 6)),
    "conv_transpose3d": (nn.ConvTranspose3d(2, 4, 3, stride=2), (2, 3, 4, 3)),
    "max_pool3d": (lambda x: F.max_pool3d(x, 2, return_indices=True), (2, 4, 5, 6)),
    "avg_pool3d": (nn.AvgPool3d(2), (2, 4, 5, 6)),
    "places of pooling": (places, (2, 6, 6)),
    "unfold": (lambda x: F.unfold(x, 3, padding=1, stride=2), (2, 6, 6)),
    "fold": (lambda x: F.fold(F.unfold(x, 3, padding=1), (6, 6), 3, padding=1), (2, 6, 6)),
    "grid_sample": (deformed, (2, 6, 7)),
    "affine_grid": (turned, (2, 6, 7)),
    "index": (chosen, (5, 6)),
    "index_put": (put, (5, 6)),
    "experts": (experts, (6,)),
    "repeat": (repeated, (5, 6)),
    "of all": (lambda x: (x.argmax(), x.kthvalue(1, 0)), (3, 6)),
    "linalg": (of_matrices, (4, 4)),
    "pad": (lambda x: F.pad(x, (1, 1, 0, 2, 1, 0), value=float("-inf")), (3, 4)),
    "embedding_bag": (bags, (6,)),
}


@pytest.mark.parametrize("name", BATCHES)
def test_a_batch_is_any(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    one, shape = BATCHES[name]
    module = one if isinstance(one, nn.Module) else Function(one)
    sizes = {0: torch.export.Dim("batch", max=8)}
    compare(module.eval(), sizes, [(count, *shape) for count in (2, 1, 3, 8)], tmp_path)


def to_sizes(mode: str, **options: Any) -> Callable[[Tensor], Any]:
    """To the size of something else, from a size that is known, and to one that is."""

    def function(x: Tensor) -> Any:
        small, table = x[:, :, ::2, ::2], torch.linspace(-4, 4, 48).sin().view(1, 3, 4, 4)
        wide = F.interpolate(small, size=x.shape[2:], mode=mode, **options)
        fixed = F.interpolate(x, size=(7, 5), mode=mode, **options)
        return wide, F.interpolate(table, size=x.shape[2:], mode=mode, **options), fixed

    return function


def pooled_to_sizes(x: Tensor) -> Any:
    means = [F.adaptive_avg_pool2d(x, size) for size in (1, (3, 2), 7, (None, 4))]
    most = [F.adaptive_max_pool2d(x, size) for size in (1, (3, 2), 7)]
    return [*means, *most, F.adaptive_avg_pool1d(x[:, :, 0], 3)]


def heads(x: Tensor) -> Tensor:
    """Batch and line joined with known sizes, and taken apart again."""
    rows = torch.einsum("bchw,bcw->bchw", x, x[:, :, 0])
    b, c, h, w = rows.shape
    split = rows.view(b, c, h, 1, w).transpose(1, 2).reshape(b * h, c, w)
    return (split @ split.mT).reshape(b, h, c * c).reshape(b * h * c, c).view(b, h, c, c)


def set_borders(x: Tensor) -> Any:
    made = x.clone()
    made[:, :, 1:-1] = x[:, :, 1:-1] * 2
    made[:, :, :, ::2] = 7
    made[:, :, -2:, 3:] = x[:, :, :2, 3:]
    return made


IMAGES: dict[str, Callable[[Tensor], Any]] = {
    "nearest": to_sizes("nearest"),
    "nearest-exact": to_sizes("nearest-exact"),
    "bilinear": to_sizes("bilinear"),
    "bilinear, corners": to_sizes("bilinear", align_corners=True),
    "bicubic": to_sizes("bicubic"),
    "bicubic, corners": to_sizes("bicubic", align_corners=True),
    "adaptive pooling": pooled_to_sizes,
    "reshape": heads,
    "set": set_borders,
    "grid_sample": deformed,
    "topk": lambda x: (x.flatten(2).topk(3).values, x.mean((0, 1)).argmax()),
    "repeat": lambda x: x[:, :1, :1, :1].repeat(1, 1, x.shape[2], x.shape[3]) + x,
}


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_is_any(name: str, tmp_path: Path) -> None:
    sizes = {axis: torch.export.Dim(f"size_{axis}", min=8, max=40) for axis in (2, 3)}
    sizes[0] = torch.export.Dim("batch", max=4)
    shapes = [(2, 3, 12, 17), (1, 3, 8, 9), (4, 3, 40, 33), (3, 3, 15, 40)]
    compare(Function(IMAGES[name]).eval(), sizes, shapes, tmp_path)


def attended(x: Tensor) -> Any:
    """Three dimensions, of which the first is a batch."""
    scores = x @ x.mT
    masks: list[Any] = [None, scores > 0, scores, scores[0], scores[:1] < 1]
    made = [F.scaled_dot_product_attention(x, x, x, attn_mask=mask) for mask in masks]
    return [*made, F.scaled_dot_product_attention(x, x, x, is_causal=True, scale=0.3)]


def with_ends(x: Tensor) -> Tensor:
    made = x.clone()
    made[:, 0] = 7.0
    made[:, -1] = x[:, 0]
    return made


LINES: dict[str, Callable[[Tensor], Any]] = {
    "attention": attended,
    "running": lambda x: (x.cummax(1), x.cummin(1)),
    "median": lambda x: (x.median(1), x.mT.median(-1, keepdim=True)),
    "diagonal": lambda x: (x @ x.mT).diagonal(dim1=1, dim2=2),
    "set": with_ends,
    "chosen": lambda x: (x[x[..., 0] > 0], torch.nonzero(x > 0), *torch.where(x[:, :, 1] < 0)),
    "masked_select": lambda x: x.masked_select(x[:, :1] > 0),
}


@pytest.mark.parametrize("name", LINES)
def test_a_line_is_any(name: str, tmp_path: Path) -> None:
    sizes = {0: torch.export.Dim("batch", max=8), 1: torch.export.Dim("length", min=2, max=40)}
    shapes = [(2, 7, 4), (1, 2, 4), (3, 33, 4), (8, 40, 4)]
    compare(Function(LINES[name]).eval(), sizes, shapes, tmp_path)


def spectrum(x: Tensor) -> Tensor:
    window = torch.hann_window(32)
    return torch.stft(x, 32, 8, window=window, return_complex=True).abs().log1p()


def test_a_recording_has_any_length(tmp_path: Path) -> None:
    sizes = {0: torch.export.Dim("batch", max=4), 1: torch.export.Dim("samples", min=64, max=512)}
    shapes = [(2, 128), (1, 64), (3, 333), (4, 512)]
    compare(Function(spectrum).eval(), sizes, shapes, tmp_path)


class Masked(nn.Module):
    """Attention where each line of a batch says which of its keys count."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)

    def forward(self, x: Tensor) -> Any:
        return self.attention(x, x, x, key_padding_mask=x[..., 0] > 1.5)


def test_padded_lines_are_of_any_length(tmp_path: Path) -> None:
    torch.manual_seed(0)
    sizes = {0: torch.export.Dim("batch", max=4), 1: torch.export.Dim("length", min=2, max=40)}
    compare(Masked().eval(), sizes, [(2, 6, 16), (1, 2, 16), (4, 40, 16)], tmp_path)
