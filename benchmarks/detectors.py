"""torchvision's detectors in a form that torch.export can follow, with the same numbers.

What is replaced asks how many boxes there are, which only a run tells: ``len(boxes)``,
``if count > 0``, and a loop that gives each box to one level of features. Operators that are
missing where torchvision is built for another torch are those of its own Python code.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

ONE_STAGE = (
    "retinanet_resnet50_fpn retinanet_resnet50_fpn_v2 fcos_resnet50_fpn ssd300_vgg16".split()
)
ONE_STAGE += ["ssdlite320_mobilenet_v3_large"]
LIBRARIES: list[torch.library.Library] = []  # definitions last as long as these


class Detector(nn.Module):
    """What a detector finds in one image."""

    def __init__(self, model: nn.Module, image: torch.Tensor) -> None:
        super().__init__()
        from torchvision.models.detection import _utils, transform
        from torchvision.ops import boxes, poolers

        self.model = model
        _define_nms()
        _define_roi_align()
        boxes.batched_nms = _batched_nms
        poolers._multiscale_roi_align = _pool_levels
        _utils.BoxCoder.decode = _decode
        transform.paste_masks_in_image = lambda masks, *_: masks  # one by one, each as it is large
        _spread_scores(model, image)

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = self.model([image])[0]
        return tuple(found[name] for name in sorted(found) if found[name].is_floating_point())


def furthest_rows(made: list[np.ndarray], wanted: list[np.ndarray]) -> float:
    """How far a found box (with its score, mask, …) is at most from the nearest of the others'.

    Boxes whose scores are equal but for rounding come in either order.
    """
    if [a.shape for a in made] != [b.shape for b in wanted] or not wanted[0].size:
        return float("inf")
    scales = [float(np.abs(b).max()) or 1.0 for b in wanted]
    rows = [
        np.concatenate([a.reshape(len(a), -1) / s for a, s in zip(side, scales, strict=True)], 1)
        for side in (made, wanted)
    ]
    apart = np.stack([np.abs(rows[1] - row).max(1) for row in rows[0]])
    return float(max(apart.min(0).max(), apart.min(1).max()))


def _spread_scores(model: nn.Module, image: torch.Tensor) -> None:
    """Untrained, all scores are the same, and either nothing is found or anything."""

    def once(layer: Any, inputs: Any, output: torch.Tensor) -> Any:
        handles.pop(layer).remove()
        layer.weight.mul_(2 / output.std().clamp(min=1e-9))
        return layer(*inputs)

    handles = {
        layer: layer.register_forward_hook(once)
        for name, layer in model.named_modules()
        if ("cls_" in name or "classification_head.module_list" in name)
        and isinstance(layer, (nn.Conv2d, nn.Linear))
    }
    with torch.no_grad():
        model([image])


def _has(name: str) -> bool:
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(f"torchvision::{name}", "CPU"))


def _define_nms() -> None:
    from torchvision.ops import boxes

    if _has("nms"):
        return
    boxes._assert_has_ops = lambda: None
    library = torch.library.Library("torchvision", "IMPL")
    library.impl("nms", _keep_best, "CPU")
    LIBRARIES.append(library)


def _keep_best(dets: torch.Tensor, scores: torch.Tensor, iou_threshold: float) -> torch.Tensor:
    from torchvision.ops import box_iou

    left = scores.argsort(descending=True, stable=True)
    kept = [left[:0]]
    while len(left):
        kept.append(left[:1])
        rest = left[1:]
        left = rest[box_iou(dets[kept[-1]], dets[rest])[0] <= iou_threshold]
    return torch.cat(kept)


def _batched_nms(
    boxes: torch.Tensor, scores: torch.Tensor, kinds: torch.Tensor, iou_threshold: float
) -> torch.Tensor:
    from torchvision.ops import nms

    beyond = torch.cat([boxes.flatten(), boxes.new_zeros(1)]).max() + 1
    return nms(boxes + (kinds.to(boxes) * beyond)[:, None], scores, iou_threshold)


def _define_roi_align() -> None:
    """torchvision's own ``_roi_align`` as the operator, which a program has as a whole."""
    from torchvision.ops.roi_align import _roi_align

    if hasattr(torch.ops.torchvision, "roi_align"):
        return
    library = torch.library.Library("torchvision", "FRAGMENT")
    library.define(
        "roi_align(Tensor input, Tensor rois, float spatial_scale, int pooled_height, "
        "int pooled_width, int sampling_ratio, bool aligned) -> Tensor"
    )
    library.impl("roi_align", _roi_align, "CPU")

    def fake(x: torch.Tensor, rois: torch.Tensor, *rest: Any) -> torch.Tensor:
        return x.new_empty(rois.shape[0], x.shape[1], rest[1], rest[2])

    torch.library.register_fake("torchvision::roi_align", fake, lib=library)
    LIBRARIES.append(library)


def _pool_levels(
    features: list[torch.Tensor],
    boxes: list[torch.Tensor],
    size: Any,
    samples: int,
    scales: list[float],
    mapper: Any,
) -> torch.Tensor:
    """Every box in every level; that of its own is kept."""
    from torchvision.ops.poolers import _convert_to_roi_format

    rois = _convert_to_roi_format(boxes)
    height, width = (size, size) if isinstance(size, int) else size
    levels = mapper(boxes)[:, None, None, None]
    made = []
    for level, (one, scale) in enumerate(zip(features, scales, strict=True)):
        pooled = torch.ops.torchvision.roi_align(one, rois, scale, height, width, samples, False)
        made.append(torch.where(levels == level, pooled, torch.zeros(())))
    return sum(made[1:], made[0])


def _decode(self: Any, codes: torch.Tensor, boxes: list[torch.Tensor]) -> torch.Tensor:
    made: torch.Tensor = self.decode_single(codes, torch.cat(boxes))
    return made.unflatten(1, (-1, 4)) if made.dim() == 2 else made
