"""torchvision's search of keypoints in the heatmaps of boxes, of all boxes at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

_A = -0.75  # torch's cubic interpolation


def keypoint_forms(roi_heads: Any) -> Iterator[tuple[Any, str, Callable[..., Any]]]:
    """What takes the place of torchvision's loop over boxes, which asks each for its size.

    All have as many pixels as the image, which only the layers before the search know.
    """
    own = roi_heads.RoIHeads.forward
    pixels = [1, 1]

    def forward(
        heads: Any, features: Any, proposals: Any, image_shapes: Any, targets: Any = None
    ) -> Any:
        pixels[:] = [max(sizes) for sizes in zip(*image_shapes, strict=True)]
        return own(heads, features, proposals, image_shapes, targets)

    def find(maps: torch.Tensor, rois: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return heatmaps_to_keypoints(maps, rois, (pixels[0], pixels[1]))

    yield roi_heads.RoIHeads, "forward", forward
    yield roi_heads, "heatmaps_to_keypoints", find


def heatmaps_to_keypoints(
    maps: torch.Tensor, rois: torch.Tensor, most: tuple[int, int]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Where each of the maps [n, k, h, w], as large as its box, has its peak, and how high it is.

    Resizing is a product with a matrix for the rows and one for the columns. Lines beyond a box are
    its last one again: of equal peaks the first one is taken.
    """
    x1, y1, x2, y2 = rois.unbind(1)
    across, down = (x2 - x1).clamp(min=1), (y2 - y1).clamp(min=1)
    rows = _cubic_shares(down.ceil(), most[0], maps.shape[2])
    columns = _cubic_shares(across.ceil(), most[1], maps.shape[3]).transpose(1, 2)
    places, scores = [], []
    for number in range(maps.shape[1]):  # one by one: together they would be a lot of memory
        of_row, x_of_row = (rows @ maps[:, number] @ columns).max(2)
        peak, y = of_row.max(1)
        x = x_of_row.gather(1, y[:, None])[:, 0]
        px = (x.to(torch.float32) + 0.5) * (across / across.ceil()) + x1
        py = (y.to(torch.float32) + 0.5) * (down / down.ceil()) + y1
        places.append(torch.stack([px, py, torch.ones_like(px)], 1))
        scores.append(peak)
    return torch.stack(places, 1), torch.stack(scores, 1)


def _cubic_shares(lengths: torch.Tensor, most: int, size: int) -> torch.Tensor:
    """How much of each of a map's lines is in each line of a box, [n, most, size]."""
    place = torch.minimum(torch.arange(most, dtype=torch.float32), lengths[:, None] - 1)
    source = (place + 0.5) * (size / lengths)[:, None] - 0.5
    before = source.floor()
    t = source - before
    shares = [_outer(t + 1), _inner(t), _inner(1 - t), _outer(2 - t)]
    lines = torch.arange(size, dtype=torch.float32)
    taken = [
        torch.where((before + step).clamp(0, size - 1)[..., None] == lines, share[..., None], 0.0)
        for step, share in zip((-1, 0, 1, 2), shares, strict=True)
    ]
    return sum(taken[1:], taken[0])


def _inner(x: torch.Tensor) -> torch.Tensor:
    return ((_A + 2) * x - (_A + 3)) * x * x + 1


def _outer(x: torch.Tensor) -> torch.Tensor:
    return ((_A * x - 5 * _A) * x + 8 * _A) * x - 4 * _A
