"""Modules as Core ML packages mean what they compute in PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import satchel
from satchel.errors import RecipeError, UnsupportedOperatorError
from support.mobilenet_v3 import MobileNetV3Small

pytest.importorskip("coremltools", reason="pip install 'satchel[coreml]'")
from satchel.backends.coreml.interpreter import PackageInterpreter

HALVES, EIGHT_BITS = 0.01, 0.08  # of the largest number


class Images(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16))
        self.grouped = nn.Conv2d(16, 32, 3, padding=2, dilation=2, groups=4)
        self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu6(self.grouped(functional.silu(self.stem(x))))
        x = functional.max_pool2d(x, 3, 2, 1)
        x = torch.cat([functional.avg_pool2d(x, 3, 2, 1), functional.avg_pool2d(-x, 3, 2, 1)], 1)
        return self.head(self.norm(x[:, 16:48].mean((2, 3))))


class Patches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches, self.places = nn.Conv2d(3, 32, 8, 8), nn.Parameter(torch.randn(1, 16, 32))
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, activation="gelu")

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(self.patches(x).flatten(2).transpose(1, 2) + self.places)


CASES = {
    "images": (Images, (1, 3, 33, 35)),
    "patches": (Patches, (1, 3, 32, 32)),
    "mobilenet_v3": (lambda: MobileNetV3Small(10), (1, 3, 32, 32)),
}


def apart(got: Any, wanted: Tensor) -> float:
    exact = wanted.detach().numpy()
    return float(np.abs(got - exact).max() / np.abs(exact).max())


@pytest.mark.parametrize(
    ("name", "recipe", "system"),
    [
        ("images", "fp16", "iOS16"),
        ("images", "int8", "iOS16"),
        ("images", "int8", "iOS18"),
        ("patches", "fp16", "iOS18"),
        ("patches", "int8", "iOS18"),
        ("mobilenet_v3", "fp16", "iOS18"),
    ],
)
def test_numbers_are_those_of_torch(tmp_path: Path, name: str, recipe: str, system: str) -> None:
    make, shape = CASES[name]
    torch.manual_seed(0)
    module, x = make().eval(), torch.randn(shape)
    path = satchel.export(
        module, (x,), tmp_path / "m.mlpackage", target=f"coreml:{system}", recipe=recipe
    )
    (got,) = PackageInterpreter(path).run(None, x=x.numpy()).values()
    assert apart(got, module(x)) < (HALVES if recipe == "fp16" else EIGHT_BITS)


def test_a_classifier_takes_pictures_and_names_what_it_sees(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module, names = MobileNetV3Small(4).eval(), ["cat", "dog", "river", "tree"]
    mean, std = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    vision = {"classes": names, "preprocessing": {"mean": mean, "std": std}}
    example = torch.randn(1, 3, 32, 32)
    path = satchel.export(
        module,
        (example,),
        tmp_path / "m.mlpackage",
        target="coreml",
        recipe="fp16",
        metadata={"vision": vision},
    )
    model = PackageInterpreter(path)
    (picture,) = model.spec.description.input
    assert picture.type.WhichOneof("Type") == "imageType"
    assert model.spec.description.predictedFeatureName == "classLabel"
    pixels = np.random.default_rng(0).integers(0, 256, (1, 3, 32, 32)).astype(np.float32)
    whitened = (pixels / 255 - np.array(mean)[:, None, None]) / np.array(std)[:, None, None]
    wanted = module(torch.tensor(whitened, dtype=torch.float32))
    assert model.run(None, x=pixels)["classLabel"] == names[int(wanted.argmax())]


def test_what_has_no_form_is_named(tmp_path: Path) -> None:
    class Sorted(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.sort(-1).values

    with pytest.raises(UnsupportedOperatorError, match="argsort"):
        satchel.export(Sorted().eval(), (torch.randn(2, 8),), tmp_path / "m", target="coreml")
    with pytest.raises(RecipeError, match="16 or 8 bits"):
        satchel.export(nn.ReLU().eval(), (torch.randn(2),), target="coreml", recipe="fp32")


def test_what_would_be_computed_otherwise_is_refused(tmp_path: Path) -> None:
    """Core ML's pools know neither dilation nor a last window that counts what is not there."""
    x = torch.randn(1, 3, 9, 9)
    counting = nn.AvgPool2d(2, 2, ceil_mode=True)
    for module, reason in ((nn.MaxPool2d(2, 1, dilation=2), "dilation"), (counting, "ceil_mode")):
        with pytest.raises(UnsupportedOperatorError, match=reason):
            satchel.export(module.eval(), (x,), tmp_path / "m.mlpackage", target="coreml")
