"""Models of timm by name, with their preprocessing, classes and weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from satchel.errors import CheckpointError, ConfigError, UnsupportedModelError
from satchel.torch.vision_models import (
    class_names,
    fill_weights,
    fill_zeros,
    read_weights,
    torchvision_models,
)
from satchel.vision.preprocess import INTERPOLATIONS, Preprocessing

PREFIX = "timm:"


def _library() -> Any:
    try:
        torchvision_models()  # which timm imports, and which may be a build for another torch
        import timm
    except Exception as error:
        told = error.message if isinstance(error, ConfigError) else str(error)
        reason = " ".join(told.split())
        raise ConfigError(
            f"timm cannot be imported ({reason})", "pip install 'satchel[timm]'."
        ) from None
    return timm


class TimmModel:
    """A classifier of timm in evaluation mode, with what belongs to it."""

    def __init__(
        self,
        name: str,
        weights: str | Path | None = None,
        classes: str | Path | None = None,
        random_weights: bool = False,
    ) -> None:
        timm = _library()
        self.name = name.removeprefix(PREFIX)
        if not timm.is_model(self.name.partition(".")[0]):
            near = ", ".join(timm.list_models(f"*{self.name[:6]}*")[:4]) or "resnet18, vit_tiny_…"
            raise UnsupportedModelError(f"timm has no model {self.name!r}", f"For example: {near}.")
        state: Mapping[str, torch.Tensor] | None = None
        settings: dict[str, Any] = {}
        if weights is not None:
            state = read_weights(Path(weights))
            settings = _class_count(timm, self.name, state)
        own = weights is None and not random_weights
        try:
            self.module = timm.create_model(self.name, pretrained=own, **settings).eval()
        except Exception as error:  # the hub raises many kinds of its own
            if not own:
                raise
            reason = " ".join(str(error).split())[:200]
            raise CheckpointError(
                f"timm cannot fetch the weights of {self.name}: {reason}",
                "Give a file with --weights, or --random-weights.",
            ) from None
        if state is not None:
            fill_weights(self.module, state, self.name)
        elif random_weights:
            fill_zeros(self.module)
        self.preprocessing = _preprocessing(self.module.pretrained_cfg)
        count = int(self.module.num_classes)
        self.classes = class_names(classes, count, _usual_classes(self.module))

    def example(self) -> torch.Tensor:
        return torch.zeros(1, 3, *self.preprocessing.crop)


def _preprocessing(said: Mapping[str, Any]) -> Preprocessing:
    channels, height, width = said["input_size"]
    if channels != 3:
        raise UnsupportedModelError(f"a model of images with {channels} channels", "Use a module.")
    way = str(said.get("interpolation", "bicubic"))
    share = float(said.get("crop_pct") or 1.0)
    return Preprocessing(
        math.floor(min(height, width) / share),
        (height, width),
        tuple(said["mean"]),
        tuple(said["std"]),
        way if way in INTERPOLATIONS else "bicubic",
    )


def _class_count(timm: Any, name: str, state: Mapping[str, torch.Tensor]) -> dict[str, int]:
    """As many as the last layer has outputs in these weights."""
    layer = timm.get_pretrained_cfg(name).classifier
    first = layer[0] if isinstance(layer, (tuple, list)) else layer
    head = state.get(f"{first}.weight") if first else None
    return {} if head is None else {"num_classes": int(head.shape[0])}


def _usual_classes(module: Any) -> list[str]:
    from timm.data import ImageNetInfo, infer_imagenet_subset

    subset = infer_imagenet_subset(module)
    if not subset:
        return []
    info = ImageNetInfo(subset)
    return [info.index_to_description(i) for i in range(info.num_classes())]
