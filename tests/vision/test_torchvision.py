"""The four models of torchvision, where it is installed."""

from __future__ import annotations

import json
import urllib.error
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import satchel
from satchel.cli.main import main
from satchel.graph.passes import IMPORTED, optimize
from satchel.quantize.static import HeadSteps, calibrate, plan_integers
from satchel.sources.names import VISION
from satchel.torch.capture import capture
from satchel.torch.importer import import_program
from satchel.torch.weights import take_weights
from support.compare import assert_close
from support.integer_layers import LayerComparison


def _torchvision() -> Any:
    """A build for another torch lacks operators that it names; they are declared here."""
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    try:
        import torchvision
        from torchvision import models  # noqa: F401
    except Exception as error:
        pytest.skip(f"torchvision cannot be imported: {error}", allow_module_level=True)
    return torchvision, library


torchvision, _library = _torchvision()


@pytest.mark.parametrize("name", ["mobilenet_v3_small", "resnet50", "vit_b_16", "swin_t"])
def test_fp32_is_torchs(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = torchvision.models.get_model(name, weights=None).eval()
    with torch.no_grad():
        for parameter in module.parameters():
            if not parameter.any():  # a head of zeros would prove nothing
                parameter.normal_(std=0.02)
        x = torch.randn(1, 3, 224, 224)
        want = module(x).numpy()
    path = satchel.export(module, (x,), tmp_path / "x.satchel")
    assert_close(satchel.load(path).method()(x.numpy()), want, 1e-4)


def test_every_node_of_swin_is_the_quantised_runs_to_one_step(tmp_path: Path) -> None:
    """Windows, masks and attention in integers, at the sizes of the real network."""
    torch.manual_seed(0)
    module = torchvision.models.swin_t(weights=None).eval()
    x = torch.randn(2, 1, 3, 224, 224)
    graph = optimize(import_program(capture(module, (x[0],))).graph, IMPORTED)
    weights = take_weights(graph)
    examples = [{graph.inputs[0].name: one.numpy()} for one in x]
    heads: dict[str, HeadSteps] = {}
    read = lambda w: weights[w.name]  # noqa: E731
    encodings = calibrate(graph, read, examples, native=True, heads=heads)
    plan = plan_integers(graph, encodings, (), heads)
    run = LayerComparison(graph, plan, weights, examples[0], tmp_path / "x.satchel")
    found = run.differences()
    assert sum(one.op == "attention_qkv" for one in found) == 12
    for one in found:
        assert one.steps is None or one.steps <= 1, one
        assert one.relative is None or one.relative < 1e-4, one


def test_export_by_name_and_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    folder = tmp_path / "images"
    folder.mkdir()
    for i in range(2):
        pixels = np.random.default_rng(i).integers(0, 255, (300, 260, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{i}.png")
    weights = tmp_path / "weights.pth"
    module = torchvision.models.mobilenet_v3_small(num_classes=7)
    torch.save(module.state_dict(), weights)
    output = tmp_path / "x.satchel"
    source = ["export", "torchvision:mobilenet_v3_small", "-o", str(output), "--json"]
    call = [*source, "--recipe", "int8", "--calibrate", str(folder), "--weights", str(weights)]
    assert main(call) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["classes"] == 7 and len(document["layer_snr_db"]) == 54
    assert main(["run", str(output), "--input", str(folder / "0.png"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["results"][0]["classes"]
    assert len(found) == 5 and found[0]["label"].startswith("class ")
    vision = satchel.load(output).metadata["vision"]
    assert vision["preprocessing"]["crop"] == [224, 224]
    for extra, message in {
        ("--recipe", "int8", "--calibrate", str(tmp_path / "nothing")): "not a folder",
        ("--group-size", "32"): "language models",
        ("--weights", str(tmp_path / "no.pth")): "does not exist",
    }.items():
        given = [*source, "--force", *extra]
        if "--weights" not in extra:
            given += ["--weights", str(weights)]
        assert main(given) == 1
        assert message in json.loads(capsys.readouterr().out)["error"]["message"]
    monkeypatch.setattr("urllib.request.urlopen", _offline)
    for chosen in ([], ["--weights", "IMAGENET1K_V1"]):
        assert main(["export", "mv3", "--json", *chosen]) == 1
        assert "not in torchvision's cache and cannot be fetched" in capsys.readouterr().out
    assert main(["export", "mv3", "--json", "--weights", "V9"]) == 1
    assert "It has IMAGENET1K_V1, DEFAULT" in capsys.readouterr().out
    assert main(["export", "torchvision:unknown_net", "--json"]) == 1
    assert "no classifier 'unknown_net'" in capsys.readouterr().out


def _offline(*_: Any, **__: Any) -> Any:
    raise urllib.error.URLError("there is no network")


def test_pretrained_weights_bring_labels_and_preprocessing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By name and from a file: those of the first version resize to 256, of the second to 232."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    cache = tmp_path / "hub" / "checkpoints"
    cache.mkdir(parents=True)
    entries = torchvision.models.ResNet50_Weights
    module = torchvision.models.resnet50(weights=None)
    for entry in entries:
        torch.save(module.state_dict(), cache / entry.url.rsplit("/", 1)[-1])
    calls = {
        "DEFAULT": entries.IMAGENET1K_V2,
        "IMAGENET1K_V1": entries.IMAGENET1K_V1,
        str(cache / entries.IMAGENET1K_V1.url.rsplit("/", 1)[-1]): entries.IMAGENET1K_V1,
    }
    output = tmp_path / "x.satchel"
    for weights, entry in calls.items():
        command = ["export", "torchvision:resnet50", "--weights", weights, "-o", str(output)]
        assert main([*command, "--recipe", "fp16", "--force"]) == 0
        vision = satchel.load(output).metadata["vision"]
        assert vision["preprocessing"]["resize"] == entry.transforms().resize_size[0]
        assert vision["classes"] == entry.meta["categories"]
    capsys.readouterr()
    assert main(["export", "resnet50", "--recipe", "int8", "-o", str(output), "--force"]) == 0
    assert "made-up images" in capsys.readouterr().err


def test_the_guides_names_are_models_of_torchvision_or_timm() -> None:
    theirs = {name for name in VISION.values() if ":" not in name}
    assert theirs <= set(torchvision.models.list_models())
    timm = pytest.importorskip("timm", reason="pip install 'satchel[timm]'")
    others = {name.removeprefix("timm:") for name in VISION.values() if ":" in name}
    assert others <= set(timm.list_models())


def test_export_by_name_for_an_npu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime_qnn", reason="pip install 'satchel[qnn]'")
    output = tmp_path / "x.satchel"
    source = ["export", "torchvision:mobilenet_v3_small", "-o", str(output), "--random-weights"]
    assert main([*source, "--target", "qnn:SM8750", "--kit", str(tmp_path / "kit")]) == 0
    assert "of binary for qnn:SM8750" in capsys.readouterr().out
    assert (tmp_path / "kit" / "shard0.forward_qnn.bin").is_file()
    pixels = np.random.default_rng(0).integers(0, 255, (300, 260, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "0.png")
    assert main(["run", str(output), "--input", str(tmp_path / "0.png"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kernels"] == "qnn emulator"
    for extra, status, message in (
        (("--kit", str(tmp_path / "other")), 2, "kit is for coreml or qnn, and the target is cpu"),
        (("--target", "qnn:SM1"), 2, "no target"),
        (("--target", "qnn:SM8750", "--recipe", "fp32"), 1, "does not run a module as fp32"),
    ):
        assert main([*source, "--force", *extra]) == status
        assert message in capsys.readouterr().err


def test_a_plan_of_a_module(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exact about the size, and nothing is written."""
    output = tmp_path / "squeezenet.satchel"
    command = ["export", "torchvision:squeezenet1_1", "--random-weights", "-o", str(output)]
    assert main([*command, "--recipe", "fp16", "--plan", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)["plan"]
    assert not output.exists() and plan["methods"] == ["forward"] and plan["payloads"] == {}
    assert main([*command, "--recipe", "fp16", "--plan"]) == 0
    assert "1.24M parameters, fp16" in capsys.readouterr().out
    assert main([*command, "--recipe", "fp16", "--json"]) == 0
    size = json.loads(capsys.readouterr().out)["file_size_bytes"]
    assert abs(plan["file_size_bytes"] - size) < 200  # the digits of the weights' errors
