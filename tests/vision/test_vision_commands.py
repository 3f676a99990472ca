"""satchel run and bench on a classifier; what is not an image, and models mixed up."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.flop_counter import FlopCounterMode

import satchel
from cli.test_documented_json import documented
from satchel.cli.main import main
from satchel.errors import ProgramFormatError
from satchel.vision.preprocess import Preprocessing
from support.tiny_llm import write_tiny_llm
from vision.conftest import PREPROCESSING


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    capsys.readouterr()
    code = main([*map(str, arguments), "--json"])
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (code == 0) == ("error" not in document)
    return document


def test_an_image_is_classified(
    capsys: pytest.CaptureFixture[str], colours: Path, pictures: Path
) -> None:
    found = run(capsys, "run", colours, "--input", pictures / "green.png", "--top", 2)
    assert set(found) == documented("Modules: `satchel run --input`") - _inner()
    (one,) = found["results"]
    assert one["classes"][0]["label"] == "green" and len(one["classes"]) == 2
    assert sum(c["probability"] for c in one["classes"]) <= 1
    assert main(["run", str(colours), "--input", str(pictures / "red.png")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4 and lines[0].endswith("red") and "%" in lines[0]


def _inner() -> set[str]:
    names = "input classes label index probability name shape dtype first error"
    return set(names.split())


def test_folders_arrays_and_standard_input(
    capsys: pytest.CaptureFixture[str],
    colours: Path,
    pictures: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = run(capsys, "run", colours, "--input", pictures)
    names = [Path(r["input"]).stem for r in found["results"]]
    assert names == ["blue", "green", "red"]
    assert [r["classes"][0]["label"] for r in found["results"]] == names
    array = PREPROCESSING.prepare(Image.open(pictures / "blue.png"))
    np.save(tmp_path / "x.npy", array)
    np.savetxt(tmp_path / "x.txt", array.reshape(-1))
    for name in ("x.npy", "x.txt"):
        found = run(capsys, "run", colours, "--input", tmp_path / name)
        assert found["results"][0]["classes"][0]["label"] == "blue"
    data = (pictures / "red.png").read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    found = run(capsys, "run", colours, "--input", "-")
    assert found["results"][0]["classes"][0]["label"] == "red"


def test_the_classes_are_drawn(
    capsys: pytest.CaptureFixture[str], colours: Path, pictures: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out.png"
    run(capsys, "run", colours, "--input", pictures / "red.png", "--annotate", output)
    before, after = (np.asarray(Image.open(p)) for p in (pictures / "red.png", output))
    assert before.shape == after.shape and (before != after).any()
    wrong = run(capsys, "run", colours, "--input", pictures / "red.png", "--annotate", "o.doc")
    assert "not the name of an image" in wrong["error"]["message"]
    several = run(capsys, "run", colours, "--input", pictures, "--annotate", output)
    assert "draws on one image" in several["error"]["message"]


def test_what_is_not_an_image_is_said(
    capsys: pytest.CaptureFixture[str], colours: Path, pictures: Path, tmp_path: Path
) -> None:
    (tmp_path / "x.jpg").write_text("no image")
    (tmp_path / "cut.png").write_bytes((pictures / "red.png").read_bytes()[:60])
    (tmp_path / "empty").mkdir()
    np.save(tmp_path / "shape.npy", np.zeros((1, 3, 9, 9), np.float32))
    np.save(tmp_path / "words.npy", np.array(["a"]))
    (tmp_path / "words.txt").write_text("one two")
    for name, message in {
        "x.jpg": "not an image",
        "cut.png": "not an image",
        "empty": "no images",
        "nothing.png": "does not exist",
        "shape.npy": "has the shape",
        "words.npy": "takes numbers",
        "words.txt": "does not hold an array",
    }.items():
        found = run(capsys, "run", colours, "--input", tmp_path / name)
        assert message in found["error"]["message"], name
        assert found["error"]["type"] == "InputError"


def test_a_model_of_another_kind_says_what_it_is(
    capsys: pytest.CaptureFixture[str], colours: Path, pictures: Path, tmp_path: Path
) -> None:
    found = run(capsys, "run", colours, "--prompt", "Hello")
    assert "not a language model" in found["error"]["message"]
    checkpoint = write_tiny_llm(tmp_path / "tiny-llama")
    llm = satchel.export(checkpoint, tmp_path / "tiny.satchel", context=96)
    found = run(capsys, "run", llm, "--input", pictures / "red.png")
    assert "is a language model" in found["error"]["message"]
    (tmp_path / "prompt.txt").write_text("Hello")
    found = run(capsys, "run", llm, "--input", tmp_path / "prompt.txt", "--max-new-tokens", 2)
    assert len(found["tokens"]) <= 2


def test_bench_of_a_module(capsys: pytest.CaptureFixture[str], colours: Path) -> None:
    found = run(capsys, "bench", colours, "--runs", 5)
    assert set(found) == documented("Modules: `satchel bench`")
    assert 0 < found["fastest_s"] <= found["median_s"] <= found["p95_s"]
    assert main(["bench", str(colours), "--runs", "3"]) == 0
    assert "95th percentile" in capsys.readouterr().out
    assert found["profile"] is None
    profile = run(capsys, "bench", colours, "--runs", 5, "--profile")["profile"]["forward"]
    method = satchel.load(colours).methods[0]
    assert {row["op"]: row["calls"] for row in profile["ops"]} == method["ops"]
    assert 0 < sum(row["seconds"] for row in profile["ops"]) <= profile["seconds"]


@pytest.mark.parametrize("recipe", ["fp32", "int8"])
def test_the_multiply_adds_of_layers_are_those_torch_counts(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, recipe: str
) -> None:
    module = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3, stride=2, padding=1),
        torch.nn.Conv2d(16, 16, 3, padding=1, groups=16),
        torch.nn.ReLU(),
        torch.nn.Conv2d(16, 32, 3),
        torch.nn.Flatten(),
        torch.nn.Linear(32 * 36, 10),
    ).eval()
    image = torch.randn(1, 3, 16, 16)
    with FlopCounterMode(display=False) as counted:
        module(image)
    calibration = [(image,)] if recipe == "int8" else None
    path = satchel.export(
        module, (image,), tmp_path / "m.satchel", recipe=recipe, calibration=calibration
    )
    profile = run(capsys, "bench", path, "--runs", 2, "--profile")["profile"]["forward"]
    products = sum(row["multiply_adds_s"] * row["seconds"] for row in profile["layers"])
    assert products == pytest.approx(counted.get_total_flops() / 2)


def test_preprocessing_goes_through_the_file() -> None:
    assert Preprocessing.from_dict(PREPROCESSING.to_dict()) == PREPROCESSING
    for wrong in ({}, {**PREPROCESSING.to_dict(), "resize": 0}, {"resize": 1, "crop": 3}):
        with pytest.raises(ProgramFormatError):
            Preprocessing.from_dict(wrong)


def test_scores_are_saved_and_a_damaged_image_does_not_stop_a_folder(
    capsys: pytest.CaptureFixture[str], colours: Path, pictures: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("red", "green"):
        (folder / f"{name}.png").write_bytes((pictures / f"{name}.png").read_bytes())
    (folder / "middle.png").write_bytes((pictures / "blue.png").read_bytes()[:60])
    out = tmp_path / "scores.npz"
    found = run(capsys, "run", colours, "--input", folder, "--output", out)
    assert [Path(r["input"]).stem for r in found["results"]] == ["green", "middle", "red"]
    assert "not an image that can be read" in found["results"][1]["error"]
    saved = np.load(out)
    assert [Path(name).stem for name in saved["inputs"]] == ["green", "red"]
    assert saved["output"].shape == (2, 4) and saved["output"].argmax(1).tolist() == [1, 0]
    (folder / "red.png").unlink(), (folder / "green.png").unlink()
    (folder / "another.png").write_bytes(b"no picture")
    assert "none of 2 inputs" in run(capsys, "run", colours, "--input", folder)["error"]["message"]


def test_a_model_of_timm_without_torchvision_asks_for_timm(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """timm needs torchvision too, and the extra for it brings both."""
    monkeypatch.setitem(sys.modules, "torchvision", None)
    assert main(["export", "timm:resnet18", "--random-weights", "--plan"]) != 0
    told = capsys.readouterr().err
    assert told.startswith("satchel: timm cannot be imported") and "satchel[timm]" in told
    assert "satchel[vision]" not in told
