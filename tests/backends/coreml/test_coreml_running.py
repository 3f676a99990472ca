"""Packages as programs: the same class runs them by Core ML on a Mac and by the interpreter here.

Core ML itself is not run by these tests: where a Mac would be needed, a stand-in with coremltools'
interface shows what it would be given.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import satchel
from satchel.backends.coreml import running
from satchel.backends.coreml.interpreter import PackageInterpreter
from satchel.backends.coreml.running import PackageProgram, interpreted
from satchel.cli.main import main
from satchel.errors import ExecutionError, ProgramFormatError
from satchel.llm.session import Session
from satchel.vision.classifier import Classifier
from support.tiny_llm import write_tiny_llm

TARGETS: dict[str, tuple[str, dict[str, Any]]] = {
    "states": ("coreml", {}),
    "caches": ("coreml:iOS17", {}),
    "kv": ("coreml", {"mode": "kv"}),
}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("coreml")
    write_tiny_llm(folder / "tiny")
    return folder / "tiny"


def package(source: Path, folder: Path, form: str) -> tuple[PackageProgram, Path]:
    """A package, and our own program with the same weights."""
    target, more = TARGETS[form]
    more = {"recipe": "fp16", "context": 40, **more}
    own = satchel.export(source, folder / "own.satchel", **more)
    made = satchel.export(source, folder / "m.mlpackage", target=target, prefill_ar_len=8, **more)
    return PackageProgram(made), own


@pytest.mark.parametrize("form", TARGETS)
def test_a_conversation_has_our_programs_logits(source: Path, tmp_path: Path, form: str) -> None:
    program, own = package(source, tmp_path, form)
    assert program.is_language_model and program.target.startswith(TARGETS[form][0])
    ours = Session(satchel.load(own))
    theirs = Session(program, instance=interpreted(program))
    assert theirs.context == 40 and theirs.prefill_ar_len == (8 if form == "states" else 1)
    tokens = list(range(60, 95))
    for some in (tokens[:13], tokens[13:14], tokens[14:]):  # the last reaches near the end
        got, want = theirs.feed(some), ours.feed(some)
        assert np.abs(got - want).max() < 0.01 * np.abs(want).max()
    for session in (ours, theirs):
        session.rewind(5)
    got, want = theirs.feed([70, 71]), ours.feed([70, 71])
    assert np.abs(got - want).max() < 0.01 * np.abs(want).max()


def test_all_rows_of_a_block(source: Path, tmp_path: Path) -> None:
    program, own = package(source, tmp_path, "states")
    given = [np.arange(60, 68, dtype=np.int32), np.arange(8, dtype=np.int32)]
    given.append(np.array([2, 7, 3], np.int32))
    want = satchel.load(own).method("prefill_forward").run(*given, np.zeros(8, np.int32))[0]
    instance = interpreted(program)
    got = instance.method("prefill_forward").run(*given, np.zeros(8, np.int32))[0]
    assert np.abs(got - want).max() < 0.01 * np.abs(want).max()
    with pytest.raises(ExecutionError, match="kv_forward, prefill_forward"):
        instance.method("forward")


def test_commands(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program, own = package(source, tmp_path, "states")
    text = tmp_path / "text.txt"
    text.write_text("Ships that are packed once can be carried to any harbour. " * 3)
    found = {}
    for path, phase in ((program.path, "qdq"), (own, "device")):
        words = ["eval", str(path), "--text", str(text), "--phases", phase, "--window", "32"]
        assert main([*words, "--limit", "64", "--json"]) == 0
        found[phase] = json.loads(capsys.readouterr().out)["phases"][phase]["ppl"]
    assert found["qdq"] == pytest.approx(found["device"], rel=0.01)
    for command in (["run", str(program.path), "Hello"], ["bench", str(program.path)]):
        assert main(command) == 1
        said = capsys.readouterr().err
        assert "has no Core ML" in said and "on a Mac" in said and "--phases qdq" in said


class StandIn:
    """coremltools' MLModel, as far as it is used; the numbers are the interpreter's."""

    made: ClassVar[list[StandIn]] = []

    def __init__(self, path: str, *, compute_units: Any, function_name: str | None) -> None:
        self.function, self.units = function_name, compute_units.name
        self.engine = self.made[0].engine if self.made else PackageInterpreter(path)
        self.made.append(self)

    def make_state(self) -> str:
        return "state"

    def predict(self, data: dict[str, Any], state: str | None = None) -> dict[str, Any]:
        given = {
            name: np.asarray(value, np.float32).transpose(2, 0, 1)[None]
            if isinstance(value, Image.Image)
            else value
            for name, value in data.items()
        }
        assert (state == "state") == bool(self.engine.states or "tokens" in data)
        return self.engine.run(self.function, **given)


@pytest.fixture
def mac(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running.ct.models, "MLModel", StandIn)
    monkeypatch.setattr(running.sys, "platform", "darwin")
    monkeypatch.setattr(StandIn, "made", [])


@pytest.mark.usefixtures("mac")
def test_what_core_ml_would_be_given(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program, own = package(source, tmp_path, "states")
    told = []
    for path in (own, program.path):
        words = ["run", str(path), "--raw", "Ships", "--temperature", "0", "--max-new-tokens", "6"]
        assert main([*words, "--json"]) == 0
        told.append(json.loads(capsys.readouterr().out)["text"])
    assert told[0] == told[1]
    assert [one.function for one in StandIn.made] == ["kv", "prefill"]
    assert {one.units for one in StandIn.made} == {"ALL"}
    words = ["bench", str(program.path), "--prompt-tokens", "9", "--new-tokens", "3", "--json"]
    assert main(words) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["kernels"] == "coreml all" and document["decode_tok_s"] > 0


@pytest.mark.usefixtures("mac")
def test_a_classifier_is_given_the_picture(tmp_path: Path) -> None:
    torch.manual_seed(0)
    names = ["cat", "dog", "river", "tree"]
    layers = nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    module = nn.Sequential(*layers, nn.Linear(8, 4)).eval()
    how = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
    how |= {"resize": 32, "crop": [32, 32], "interpolation": "bilinear"}
    vision = {"classes": names, "preprocessing": how}
    example = torch.randn(1, 3, 32, 32)
    more = {"metadata": {"vision": vision}, "recipe": "fp16"}
    own = satchel.export(module, (example,), tmp_path / "m.satchel", **more)
    made = satchel.export(module, (example,), tmp_path / "m.mlpackage", target="coreml", **more)
    pixels = np.random.default_rng(0).integers(0, 256, (40, 48, 3)).astype(np.uint8)
    image = Image.fromarray(pixels)
    ours, theirs = (Classifier(program).classify(image) for program in (own, PackageProgram(made)))
    assert [one.label for one in ours] == [one.label for one in theirs]
    for one, other in zip(ours, theirs, strict=True):
        assert one.probability == pytest.approx(other.probability, abs=2e-3)


def test_what_is_wrong_with_a_package_is_told(source: Path, tmp_path: Path) -> None:
    program, _ = package(source, tmp_path, "states")
    (tmp_path / "m.tokenizer.json").unlink()
    with pytest.raises(ExecutionError, match="m.tokenizer.json is not beside m.mlpackage"):
        program.section("tokenizer")
    (tmp_path / "empty.mlpackage").mkdir()
    with pytest.raises(ProgramFormatError, match="no Core ML package"):
        PackageProgram(tmp_path / "empty.mlpackage")
    with pytest.raises(satchel.SatchelError, match="no checksums"):
        program.verify()
