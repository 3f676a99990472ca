"""torchvision's detectors as a module of one image, and how far what they find is apart.

Operators that are missing where torchvision is built for another torch are those of its own Python
code.
"""

from __future__ import annotations

import importlib
import re
from typing import Any

import numpy as np
import torch
from torch import nn

LIBRARIES: list[torch.library.Library] = []  # definitions last as long as these


class Detector(nn.Module):
    """What a detector finds in one image."""

    def __init__(self, model: nn.Module, image: torch.Tensor) -> None:
        super().__init__()
        self.model = model
        _define_nms()
        _define_roi_align()
        _spread(model, image)

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


def _spread(model: nn.Module, image: torch.Tensor) -> None:
    """Every layer's results differ from place to place, those that are scores the most.

    Untrained, all scores are the same but for rounding, and it is chance which boxes are found.
    Layers of scores that read several levels of features are judged by the level that differs
    most: where scores are as large as they can be, they are all the same again. So they would be
    where each of a million places has a score of its own, were these spread as far. Where nothing
    is found after that, because one class is far ahead at every place, all classes are made even.
    """

    def once(layer: Any, inputs: Any, output: torch.Tensor) -> Any:
        spread = _spread_of(output)
        if layer in scores:
            scores[layer] = max(scores[layer], spread)
            return None
        handles.pop(layer).remove()
        if not spread > 0:  # a single place
            return None
        layer.weight.mul_(1 / spread)
        return layer(*inputs)

    def even(layer: Any, inputs: Any, output: torch.Tensor) -> None:
        handles.pop(layer).remove()
        layer.bias.sub_(output.mean([i for i in range(output.dim()) if i != 1]))

    last = {  # of the layers of a head's level, where it has several
        re.sub(r"(module_list\.\d+)\..*", r"\1", name): (name, layer)
        for name, layer in model.named_modules()
        if isinstance(layer, (nn.Conv2d, nn.Linear))
        and ("cls_" in name or "classification_head.module_list" in name)
    }
    of_places = "classification_head.cls_logits"
    far = {layer: 1 if of_places in name else 2 for name, layer in last.values()}
    scores = dict.fromkeys(far, 0.0)
    handles = {
        layer: layer.register_forward_hook(once)
        for layer in model.modules()
        if isinstance(layer, (nn.Conv2d, nn.Linear))
    }
    with torch.no_grad():
        model([image])
        for layer, spread in scores.items():
            handles.pop(layer).remove()
            layer.weight.mul_(far[layer] / spread if spread > 0 else 1)
        if len(model([image])[0]["boxes"]):
            return
        for layer in scores:
            handles[layer] = layer.register_forward_hook(even)
        model([image])


def _spread_of(output: torch.Tensor) -> float:
    places = output.flatten(2).transpose(0, 1) if output.dim() == 4 else output.transpose(0, 1)
    return float(places.flatten(1).std(1).mean())


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
        # Boxes without an area overlap nothing: their share is no number.
        left = rest[~(box_iou(dets[kept[-1]], dets[rest])[0] > iou_threshold)]
    return torch.cat(kept)


def _define_roi_align() -> None:
    """torchvision's own ``_roi_align`` as the operator, which a program has as a whole.

    But for points beyond the features, which are 0 to the operator.
    """
    if hasattr(torch.ops.torchvision, "roi_align"):
        return
    module = importlib.import_module("torchvision.ops.roi_align")
    module._has_ops = lambda: True
    module._assert_has_ops = lambda: None
    interpolate = module._bilinear_interpolate

    def of_points_inside(x: Any, image: Any, rows: Any, columns: Any, *masks: Any) -> Any:
        within = (rows >= -1) & (rows <= x.shape[2])
        across = (columns >= -1) & (columns <= x.shape[3])
        inside = within[:, None, :, None, :, None] & across[:, None, None, :, None, :]
        return interpolate(x, image, rows, columns, *masks) * inside

    module._bilinear_interpolate = of_points_inside
    library = torch.library.Library("torchvision", "FRAGMENT")
    library.define(
        "roi_align(Tensor input, Tensor rois, float spatial_scale, int pooled_height, "
        "int pooled_width, int sampling_ratio, bool aligned) -> Tensor"
    )
    library.impl("roi_align", module._roi_align, "CPU")

    def fake(x: torch.Tensor, rois: torch.Tensor, *rest: Any) -> torch.Tensor:
        return x.new_empty(rois.shape[0], x.shape[1], rest[1], rest[2])

    torch.library.register_fake("torchvision::roi_align", fake, lib=library)
    LIBRARIES.append(library)
