"""The vision models of the side-by-side run, from torchvision with random weights."""

from __future__ import annotations

from typing import Any

MODELS = ("mobilenet_v3_small", "resnet50", "vit_b_16", "swin_t")
IMAGE = (1, 3, 224, 224)
CALIBRATION_IMAGES = 8


def build(name: str) -> Any:
    """The module in evaluation mode; the same weights in every process."""
    import torch

    _declare_missing_operators()
    import torchvision

    torch.manual_seed(0)
    return torchvision.models.get_model(name, weights=None).eval()


def images(count: int) -> list[Any]:
    """Arrays like normalised photographs, float32 [1, 3, 224, 224]."""
    import numpy as np

    rng = np.random.default_rng(0)
    return [rng.standard_normal(IMAGE).astype(np.float32) for _ in range(count)]


def _declare_missing_operators() -> None:
    """PyPI's torchvision has its operators in a library for another build of torch; without it,
    the two that it gives a shape to on import must at least be known.
    """
    import torch

    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            schema = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            torch.library.define(f"torchvision::{name}", schema)
