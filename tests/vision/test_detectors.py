"""torchvision's detectors as users have them, against torchvision itself, where it is installed."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import satchel
from satchel.errors import ConfigError
from satchel.torch.detectors import _paste_masks
from satchel.torch.keypoints import heatmaps_to_keypoints
from satchel.torch.vision_models import torchvision_models

try:
    detection = torchvision_models().detection
except ConfigError as error:
    pytest.skip(str(error), allow_module_level=True)


@pytest.fixture(scope="module")
def helpers() -> Iterator[ModuleType]:
    """``detectors`` of the benchmarks: the operators that a build for another torch lacks."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
    yield importlib.import_module("detectors")
    sys.path.pop(0)


class Backbone(nn.Module):
    """Two levels of features, as a pyramid has them."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 16, 4, stride=4)
        self.second = nn.Conv2d(16, 16, 2, stride=2)
        self.out_channels = 16

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        fine = torch.relu(self.first(x))
        return {"0": fine, "1": torch.relu(self.second(fine))}


def _pooler(size: int) -> nn.Module:
    module: nn.Module = importlib.import_module("torchvision.ops").MultiScaleRoIAlign(
        ["0", "1"], size, 2
    )
    return module


def _detector(kind: str) -> nn.Module:
    anchors = detection.anchor_utils.AnchorGenerator(((8,), (16,)), ((0.5, 1.0),) * 2)
    options: dict[str, Any] = {"min_size": 48, "max_size": 64, "box_detections_per_img": 12}
    options |= {"rpn_anchor_generator": anchors, "box_roi_pool": _pooler(3)}
    if kind == "MaskRCNN":
        options["mask_roi_pool"] = _pooler(6)
    if kind == "KeypointRCNN":
        options["keypoint_roi_pool"] = _pooler(6)
        options["keypoint_head"] = detection.keypoint_rcnn.KeypointRCNNHeads(16, (16,))
        options["keypoint_predictor"] = detection.keypoint_rcnn.KeypointRCNNPredictor(16, 5)
    if kind == "FasterRCNN v2":  # whose head is convolutional
        head = detection.faster_rcnn.FastRCNNConvFCHead((16, 3, 3), [16], [32], nn.BatchNorm2d)
        options["box_head"] = head
        options["box_predictor"] = detection.faster_rcnn.FastRCNNPredictor(32, 5)
    classes = None if "box_predictor" in options else 5
    name = kind.split(maxsplit=1)[0]
    module: nn.Module = getattr(detection, name)(Backbone(), classes, **options).eval()
    return module


@pytest.mark.parametrize("kind", ["FasterRCNN", "FasterRCNN v2", "MaskRCNN", "KeypointRCNN"])
def test_what_is_found_is_torchvisions(kind: str, helpers: ModuleType, tmp_path: Path) -> None:
    torch.manual_seed(3)
    model, images = _detector(kind), [torch.rand(3, 40, 52)]
    helpers.Detector(model, images[0])  # with weights by which boxes differ
    with torch.no_grad():
        (wanted,) = model(images)
    path = satchel.export(model, (images,), tmp_path / "m.satchel")
    method = satchel.load(path).method()
    assert list(method.outputs) == [f"output_0.{name}" for name in wanted]
    made = method.run(*(x.numpy() for x in images))
    assert [a.shape for a in made] == [tuple(b.shape) for b in wanted.values()]
    assert len(wanted["boxes"]) > 3
    assert helpers.furthest_rows(made, [b.numpy() for b in wanted.values()]) < 1e-4


class OfKinds(nn.Module):
    def forward(self, boxes: torch.Tensor, scores: torch.Tensor, kinds: torch.Tensor) -> Any:
        return importlib.import_module("torchvision.ops").batched_nms(boxes, scores, kinds, 0.5)


def test_boxes_of_a_kind_hide_each_other_whatever_their_number(
    helpers: ModuleType, tmp_path: Path
) -> None:
    """Far from the middle, where moving each kind elsewhere would round the boxes."""
    helpers.Detector(_detector("FasterRCNN"), torch.rand(3, 40, 52))  # torchvision's operators
    torch.manual_seed(0)
    corners, kinds = torch.rand(1500, 2) * 6 + 1e4, torch.randint(0, 150, (1500,))
    boxes = torch.cat([corners, corners + torch.rand(1500, 2).clamp(0.1) * 9], 1)
    boxes[:40, 2] = boxes[:40, 0]  # without an area
    inputs = (boxes, torch.rand(1500), kinds)
    method = satchel.load(satchel.export(OfKinds().eval(), inputs, tmp_path / "m.satchel")).method()
    wanted = OfKinds()(*inputs)
    assert 40 < len(wanted) < 1400
    np.testing.assert_array_equal(method(*(x.numpy() for x in inputs)), wanted.numpy())


def test_masks_are_pasted_as_torchvision_pastes_them() -> None:
    paste = importlib.import_module("torchvision.models.detection.roi_heads").paste_masks_in_image
    torch.manual_seed(0)
    corners = torch.rand(30, 4) * 40 - 4
    boxes = torch.cat(
        [torch.minimum(corners[:, :2], corners[:, 2:]), corners.view(30, 2, 2).amax(1)], 1
    )
    masks = torch.rand(30, 1, 7, 7)
    mine = _paste_masks(masks, boxes, (33, 29))
    np.testing.assert_allclose(mine.numpy(), paste(masks, boxes, (33, 29)).numpy(), atol=1e-5)


def test_keypoints_are_found_where_torchvision_finds_them() -> None:
    heads = importlib.import_module("torchvision.models.detection.roi_heads")
    torch.manual_seed(0)
    corners = torch.rand(30, 2, 2) * 60
    boxes = torch.cat([corners.amin(1), corners.amax(1)], 1)
    boxes[0, 2:] = boxes[0, :2]  # without an area
    maps = torch.randn(30, 5, 14, 12)
    for mine, theirs in zip(
        heatmaps_to_keypoints(maps, boxes, (60, 60)),
        heads.heatmaps_to_keypoints(maps, boxes),
        strict=True,
    ):
        np.testing.assert_allclose(mine.numpy(), theirs.numpy(), atol=1e-5)
