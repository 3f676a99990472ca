"""Models of timm by name, where it and torchvision are installed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import satchel
from satchel.cli.main import main
from satchel.errors import ConfigError
from satchel.vision.classifier import Classifier
from support.compare import assert_close


def _timm() -> Any:
    from satchel.torch.timm_models import _library

    try:
        return _library()
    except ConfigError as error:
        pytest.skip(str(error), allow_module_level=True)


timm = _timm()


@pytest.mark.parametrize("name", ["resnet10t", "vit_tiny_patch16_224", "mobilenetv4_conv_small"])
def test_weights_of_a_file(name: str, tmp_path: Path) -> None:
    torch.manual_seed(1)
    module = timm.create_model(name, num_classes=7).eval()
    with torch.no_grad():
        for parameter in module.parameters():
            if not parameter.any():
                parameter.normal_(std=0.02)
    save_file(module.state_dict(), tmp_path / "net.safetensors")
    path = tmp_path / "net.satchel"
    weights = str(tmp_path / "net.safetensors")
    assert main(["export", f"timm:{name}", "--weights", weights, "-o", str(path)]) == 0
    program = satchel.load(path)
    assert program.metadata["architecture"] == f"timm:{name}"
    classifier = Classifier(program)
    said = module.pretrained_cfg
    assert classifier.preprocessing.crop == tuple(said["input_size"][1:])
    assert classifier.preprocessing.mean == tuple(said["mean"])
    assert classifier.classes == [f"class {i}" for i in range(7)]
    x = np.random.default_rng(0).normal(size=(1, 3, *classifier.preprocessing.crop))
    with torch.no_grad():
        wanted = module(torch.from_numpy(x.astype(np.float32))).numpy()[0]
    assert_close(classifier.scores(x.astype(np.float32)), wanted, 1e-3)


def test_what_cannot_be_had_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["export", "timm:resnet1o"]) == 1
    assert "timm has no model" in capsys.readouterr().err

    def unreachable(*_: Any, **__: Any) -> None:
        raise OSError("the hub is not there")

    monkeypatch.setattr(timm, "create_model", unreachable)
    assert main(["export", "timm:resnet10t", "-o", str(tmp_path / "x.satchel")]) == 1
    assert "--random-weights" in capsys.readouterr().err


def test_random_weights_have_imagenets_classes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "net.satchel"
    asked = ["export", "timm:resnet10t", "--random-weights", "-o", str(path), "--json"]
    assert main(asked) == 0
    assert json.loads(capsys.readouterr().out)["classes"] == 1000
    assert "golden retriever" in Classifier(path).classes
