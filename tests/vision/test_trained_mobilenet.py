"""A trained MobileNetV3 of three classes sorts six photographs right: in 32 bits, 8, on an NPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import satchel
from satchel.torch.vision_models import read_weights
from satchel.vision.classifier import Classifier, class_metadata
from satchel.vision.images import image_paths, open_image
from satchel.vision.preprocess import Preprocessing
from support.mobilenet_v3 import MobileNetV3Small

DATA = Path(__file__).parents[3] / "shared" / "data" / "mobilenetv3_small_3class"
PREPROCESSING = Preprocessing(224, (224, 224))
CLASSES = ["meal", "report", "other"]  # as the photographs are named

pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="the trained model is not here")


@pytest.fixture(scope="module")
def module() -> torch.nn.Module:
    (file,) = DATA.glob("*.gguf")
    model = MobileNetV3Small(3)
    state = read_weights(file)
    missing, extra = model.load_state_dict(state, strict=False)
    assert not extra and all("num_batches_tracked" in name for name in missing)
    return model.eval()


@pytest.fixture(scope="module")
def photographs() -> dict[str, np.ndarray]:
    return {p.stem: PREPROCESSING.prepare(open_image(p, p.name)) for p in image_paths(DATA)}


@pytest.mark.parametrize("recipe", ["fp32", "fp16", "int8"])
def test_all_six_are_right(
    recipe: str, module: torch.nn.Module, photographs: dict[str, np.ndarray], tmp_path: Path
) -> None:
    assert len(photographs) == 6
    calibration = list(photographs.values()) if recipe == "int8" else None
    path = satchel.export(
        module,
        (torch.zeros(1, 3, 224, 224),),
        tmp_path / "x.satchel",
        recipe=recipe,
        calibration=calibration,
        metadata=class_metadata(PREPROCESSING, CLASSES),
    )
    classifier = Classifier(path)
    forward = classifier.program.method()
    for name, array in photographs.items():
        assert classifier.classify(array)[0].label == name.split("_")[0], name
        with torch.no_grad():
            want = module(torch.from_numpy(array)).numpy()
        worst = np.abs(forward(array) - want).max() / np.abs(want).max()
        assert worst < {"fp32": 1e-4, "fp16": 0.05, "int8": 0.5}[recipe], (name, worst)
    if recipe == "int8":
        ops = classifier.program.methods[0]["ops"]
        assert ops["qconv2d"] + ops["qlinear"] == 53 and ops["transpose"] == 1
        noise = classifier.program.metadata["layer_snr_db"]
        assert len(noise) == 54
        # The first depthwise layer reads channels whose ranges differ by far too much for 8 bits.
        assert classifier.program.metadata["kept_in_float"] == ["features.1.block.0.0.weight"]


def test_all_six_are_right_on_an_npu(
    module: torch.nn.Module, photographs: dict[str, np.ndarray], tmp_path: Path
) -> None:
    pytest.importorskip("onnxruntime_qnn", reason="pip install 'satchel[qnn]'")
    path = satchel.export(
        module,
        (torch.zeros(1, 3, 224, 224),),
        tmp_path / "x.satchel",
        recipe="int8",
        target="qnn:SM8750",
        calibration=list(photographs.values()),
        metadata=class_metadata(PREPROCESSING, CLASSES),
    )
    classifier = Classifier(path)
    for name, array in photographs.items():
        assert classifier.classify(array)[0].label == name.split("_")[0], name
    meta = classifier.program.metadata
    assert meta["placement"] == {"nodes": {"qnn": 81}, "fallbacks": []}
    # Half of the layers, the noisiest: with only the first depthwise one, a photograph is wrong.
    assert meta["in_16_bits"][0] == "features.1.block.0.0.weight" and len(meta["in_16_bits"]) == 27
