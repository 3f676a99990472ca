"""torchvision's functions on boxes in a form that torch.export can follow, with the same results.

Its own ask how many boxes there are, which only a run tells: ``len(boxes)``, ``if count > 0``,
a loop over boxes, one that gives each box to one level of features.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn.functional import pad

from satchel.torch.keypoints import keypoint_forms


def detector_forms() -> Iterator[tuple[Any, str, Callable[..., Any]]]:
    """(module or class, name, what to do instead), of what has been imported."""
    modules = sys.modules
    coders = modules.get("torchvision.models.detection._utils")
    heads = modules.get("torchvision.models.detection.roi_heads")
    yield modules.get("torchvision.ops"), "batched_nms", _batched_nms
    yield modules.get("torchvision.ops.boxes"), "batched_nms", _batched_nms
    yield modules.get("torchvision.ops.poolers"), "_multiscale_roi_align", _pool_levels
    transform = modules.get("torchvision.models.detection.transform")
    yield transform, "paste_masks_in_image", _paste_masks
    yield getattr(coders, "BoxCoder", None), "decode", _decode
    if heads is not None:
        yield from keypoint_forms(heads)


def _batched_nms(
    boxes: torch.Tensor, scores: torch.Tensor, idxs: torch.Tensor, iou_threshold: float
) -> torch.Tensor:
    """As one operator, which compares boxes of a kind only."""
    kept: torch.Tensor = nms_of_kinds(boxes, scores, idxs, iou_threshold)
    return kept


@torch.library.custom_op("satchel::nms_of_kinds", mutates_args=())  # type: ignore[untyped-decorator]
def nms_of_kinds(
    boxes: torch.Tensor, scores: torch.Tensor, kinds: torch.Tensor, threshold: float
) -> torch.Tensor:
    """The boxes, the best first, that overlap none of their kind that is kept before them."""
    from torchvision.ops import nms

    keeps = torch.zeros_like(scores, dtype=torch.bool)
    for kind in kinds.unique():
        (own,) = torch.where(kinds == kind)
        keeps[own[nms(boxes[own], scores[own], threshold)]] = True
    order = scores.argsort(descending=True, stable=True)
    return order[keeps[order]]


@nms_of_kinds.register_fake  # type: ignore[untyped-decorator]
def _as_many_as_are_kept(
    boxes: torch.Tensor, scores: torch.Tensor, kinds: torch.Tensor, threshold: float
) -> torch.Tensor:
    # Two or more, as torchvision's own says: so no layer asks whether there are none.
    count = torch.library.get_ctx().new_dynamic_size(min=2)
    return boxes.new_empty(count, dtype=torch.int64)


def _pool_levels(
    x_filtered: list[torch.Tensor],
    boxes: list[torch.Tensor],
    output_size: Any,
    sampling_ratio: int,
    scales: list[float],
    mapper: Any,
) -> torch.Tensor:
    """Every box in every level; that of its own is kept."""
    from torchvision.ops import roi_align
    from torchvision.ops.poolers import _convert_to_roi_format

    rois = _convert_to_roi_format(boxes)
    levels = mapper(boxes)[:, None, None, None]
    made = []
    for level, (features, scale) in enumerate(zip(x_filtered, scales, strict=True)):
        pooled = roi_align(features, rois, output_size, scale, sampling_ratio)
        made.append(torch.where(levels == level, pooled, torch.zeros(())))
    return sum(made[1:], made[0])


def _decode(self: Any, rel_codes: torch.Tensor, boxes: list[torch.Tensor]) -> torch.Tensor:
    """``BoxCoder.decode`` of any number of boxes."""
    made: torch.Tensor = self.decode_single(rel_codes.flatten(1), torch.cat(boxes))
    return made.unflatten(1, (-1, 4))


def _paste_masks(
    masks: torch.Tensor, boxes: torch.Tensor, img_shape: tuple[int, int], padding: int = 1
) -> torch.Tensor:
    """Each mask [n, 1, m, m] where its box lies in the image, as large as it.

    Resizing is linear along each axis: a product with a matrix for the rows and one for the
    columns, whose entries are 0 beyond the box.
    """
    from torchvision.models.detection.roi_heads import expand_boxes

    padded = pad(masks, (padding,) * 4)[:, 0]
    size = padded.shape[-1]
    whole = expand_boxes(boxes, size / masks.shape[-1]).to(torch.int64)
    rows = _pixel_shares(whole[:, 1], whole[:, 3], img_shape[0], size)
    columns = _pixel_shares(whole[:, 0], whole[:, 2], img_shape[1], size)
    return (rows @ padded @ columns.transpose(1, 2))[:, None]


def _pixel_shares(first: torch.Tensor, last: torch.Tensor, pixels: int, size: int) -> torch.Tensor:
    """How much of each of a mask's lines is in each line of an image, [n, pixels, size]."""
    places = torch.arange(pixels)
    length = (last - first + 1).clamp(min=1)
    inside = (places >= first[:, None]) & (places <= last[:, None])
    offset = (places - first[:, None]).to(torch.float32)
    step = (size / length.to(torch.float32))[:, None]
    source = ((offset + 0.5) * step - 0.5).clamp(0, size - 1)
    shares = (1 - (source[:, :, None] - torch.arange(size)).abs()).clamp(min=0)
    return shares * inside[:, :, None]
