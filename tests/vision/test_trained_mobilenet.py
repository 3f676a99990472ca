"""A trained MobileNetV3 of three classes sorts six photographs right: in 32 bits, 8, on an NPU."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

import satchel
from satchel.graph.passes import IMPORTED, optimize
from satchel.quantize.static import calibrate, decibels, plan_integers, signal_to_noise
from satchel.torch.capture import capture
from satchel.torch.importer import import_program
from satchel.torch.vision_models import read_weights
from satchel.torch.weights import take_weights
from satchel.vision.classifier import Classifier, class_metadata
from satchel.vision.images import image_paths, open_image
from satchel.vision.preprocess import Preprocessing
from support.compare import assert_close
from support.integer_layers import LayerComparison
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


@pytest.fixture(scope="module")
def folded(module: torch.nn.Module) -> torch.nn.Module:
    """Torch's own folding of batch norm, with the weights then rounded to 16 bits."""
    model = copy.deepcopy(module)
    for sequence in [m for m in model.modules() if isinstance(m, nn.Sequential)]:
        for i in range(len(sequence) - 1):
            layer, norm = sequence[i], sequence[i + 1]
            if isinstance(layer, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
                sequence[i], sequence[i + 1] = fuse_conv_bn_eval(layer, norm), nn.Identity()
    for layer in model.modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            layer.weight.data = layer.weight.data.half().float()
    assert not any(isinstance(m, nn.BatchNorm2d) for m in model.modules())
    return model


@pytest.mark.parametrize("recipe", ["fp32", "fp16", "int8"])
def test_all_six_are_right(
    recipe: str,
    module: torch.nn.Module,
    folded: torch.nn.Module,
    photographs: dict[str, np.ndarray],
    tmp_path: Path,
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
        if recipe == "fp16":
            # Batch norm is part of the weights before these are rounded, and nothing else is.
            with torch.no_grad():
                rounded = folded(torch.from_numpy(array)).numpy()
            assert_close(forward(array), rounded, 1e-4)
    if recipe == "int8":
        ops = classifier.program.methods[0]["ops"]
        assert ops["qconv2d"] + ops["qlinear"] == 53 and ops["transpose"] == 1
        noise = classifier.program.metadata["layer_snr_db"]
        assert len(noise) == 54
        # The first depthwise layer reads channels whose ranges differ by far too much for 8 bits.
        assert classifier.program.metadata["kept_in_float"] == ["features.1.block.0.0.weight"]


@pytest.mark.parametrize("recipe", ["int8", "fp16"])
def test_all_six_are_right_on_an_npu(
    recipe: str, module: torch.nn.Module, photographs: dict[str, np.ndarray], tmp_path: Path
) -> None:
    pytest.importorskip("onnxruntime_qnn", reason="pip install 'satchel[qnn]'")
    path = satchel.export(
        module,
        (torch.zeros(1, 3, 224, 224),),
        tmp_path / "x.satchel",
        recipe=recipe,
        target="qnn:SM8750",
        calibration=list(photographs.values()) if recipe == "int8" else None,
        metadata=class_metadata(PREPROCESSING, CLASSES),
    )
    classifier = Classifier(path)
    power = [0.0, 0.0]
    for name, array in photographs.items():
        scores = classifier.scores(array)
        assert CLASSES[scores.argmax()] == name.split("_")[0], name
        with torch.no_grad():
            pair = signal_to_noise(module(torch.from_numpy(array)).numpy()[0], scores)
        power = [one + other for one, other in zip(power, pair, strict=True)]
    meta = classifier.program.metadata
    assert meta["placement"] == {"nodes": {"qnn": 81}, "fallbacks": []}
    if recipe == "int8":
        # With only the first depthwise layer in 16 bits, one of the photographs is wrong.
        assert "features.1.block.0.0.weight" in meta["in_16_bits"] and len(meta["in_16_bits"]) > 13
    else:
        assert decibels(*power) > 30


@pytest.mark.parametrize("recipe", ["fp32", "int8"])
def test_all_six_are_right_in_executorch(
    recipe: str, module: torch.nn.Module, photographs: dict[str, np.ndarray], tmp_path: Path
) -> None:
    runtime = pytest.importorskip("executorch.runtime", reason="pip install 'satchel[executorch]'")
    path = satchel.export(
        module,
        (torch.zeros(1, 3, 224, 224),),
        tmp_path / "x.pte",
        recipe=recipe,
        target="executorch",
        calibration=list(photographs.values()) if recipe == "int8" else None,
        metadata=class_metadata(PREPROCESSING, CLASSES),
    )
    assert (tmp_path / "x.classes.txt").read_text().split() == CLASSES
    forward = runtime.Runtime.get().load_program(path).load_method("forward")
    for name, array in photographs.items():
        scores = forward.execute([torch.from_numpy(array)])[0]
        assert CLASSES[int(scores.argmax())] == name.split("_")[0], name


def test_every_layer_is_the_quantised_runs_to_one_step(
    module: torch.nn.Module, photographs: dict[str, np.ndarray], tmp_path: Path
) -> None:
    graph = optimize(
        import_program(capture(module, (torch.zeros(1, 3, 224, 224),))).graph, IMPORTED
    )
    weights = take_weights(graph)
    examples = [{graph.inputs[0].name: array} for array in photographs.values()]
    encodings = calibrate(graph, lambda w: weights[w.name], examples, native=True)
    plan = plan_integers(graph, encodings)
    run = LayerComparison(graph, plan, weights, examples[0], tmp_path / "x.satchel")
    found = run.differences()
    assert sum(one.op in ("conv2d", "linear", "add") for one in found) >= 54
    for one in found:
        assert one.steps is None or one.steps <= 1, one
        assert one.relative is None or one.relative < 1e-4, one
