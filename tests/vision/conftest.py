"""A classifier of 4 classes that looks at nothing but colours, and pictures for it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import satchel
from satchel.vision.classifier import class_metadata
from satchel.vision.preprocess import Preprocessing

CLASSES = ["red", "green", "blue", "grey"]
PREPROCESSING = Preprocessing(20, (16, 16), (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))


class Colours(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, stride=2, padding=1)
        self.head = nn.Linear(4, 4)
        with torch.no_grad():
            self.conv.weight.zero_()
            self.conv.bias.copy_(torch.tensor([1.0, 1.0, 1.0, 0.0]))
            for i in range(3):
                self.conv.weight[i, i, 1, 1] = 1.0
            self.head.weight.copy_(torch.eye(4) * 4)
            self.head.bias.copy_(torch.tensor([0.0, 0.0, 0.0, 5.0]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.conv(x)).mean((2, 3)))


@pytest.fixture(scope="session")
def colours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("vision") / "colours.satchel"
    metadata = class_metadata(PREPROCESSING, CLASSES)
    inputs = (torch.zeros(1, 3, 16, 16),)
    return satchel.export(Colours().eval(), inputs, path, metadata=metadata)


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    for i, name in enumerate(CLASSES[:3]):
        pixels = np.zeros((30, 41, 3), np.uint8)
        pixels[:, :, i] = 255
        Image.fromarray(pixels).save(folder / f"{name}.png")
    return folder
