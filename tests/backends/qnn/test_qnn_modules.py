"""PyTorch modules on the emulator, against the reference's rounded run and against torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime_qnn", reason="pip install 'satchel[qnn]'")
pytest.importorskip("torch", reason="pip install 'satchel[torch]'")

import torch
from torch import nn
from torch.nn import functional

import satchel
from satchel.backends import open_instance
from satchel.backends.qnn import compiler, vendor
from satchel.backends.qnn.kit import write_kit
from satchel.backends.qnn.lowering import lower
from satchel.backends.qnn.payload import read_manifest
from satchel.backends.qnn.prepared import PreparedProgram
from satchel.cli.main import main
from satchel.errors import (
    BackendError,
    ExecutionError,
    GraphError,
    ProgramFormatError,
    RecipeError,
    UnsupportedOperatorError,
)
from satchel.graph.builder import GraphBuilder
from satchel.runtime.program import Program
from satchel.vision.classifier import Classifier, class_metadata
from satchel.vision.preprocess import Preprocessing

TARGET = "qnn:SM8750"


class Mobile(nn.Module):
    """Convolution, depthwise, squeeze and excitation, residual, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16))
        self.deep = nn.Conv2d(16, 16, 3, 1, 1, groups=16)
        self.squeeze, self.excite = nn.Conv2d(16, 8, 1), nn.Conv2d(8, 16, 1)
        self.point, self.head = nn.Conv2d(16, 16, 1), nn.Linear(16, 10)

    def forward(self, x: Any) -> Any:
        x = functional.hardswish(self.stem(x))
        y = functional.relu(self.deep(x))
        gate = functional.relu(self.squeeze(functional.adaptive_avg_pool2d(y, 1)))
        x = x + self.point(y * functional.hardsigmoid(self.excite(gate)))
        return self.head(functional.max_pool2d(x, 3, 2, 1).mean((2, 3)))


class Encoder(nn.Module):
    """A layer of a vision transformer, with norms that do something."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(32) for _ in range(2))
        self.attention = nn.MultiheadAttention(32, 4, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))
        for parameter in self.parameters():
            parameter.data += 0.05 * torch.randn_like(parameter)

    def forward(self, x: Any) -> Any:
        y = self.norms[0](x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.norms[1](x))


class Windows(nn.Module):
    """Attention in shifted windows: rolls, six dimensions, a mask of -100."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        mask = torch.zeros(4, 1, 4, 4)
        mask[1, :, :2, 2:] = mask[3, :, 1:, :1] = -100.0
        self.register_buffer("mask", mask)

    def forward(self, x: Any) -> Any:
        y = torch.roll(x, (-1, -1), (1, 2)).view(1, 2, 2, 2, 2, 16)
        y = y.permute(0, 1, 3, 2, 4, 5).reshape(4, 4, 16)
        q, k, v = self.qkv(y).view(4, 4, 3, 2, 8).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-2, -1)) * 8**-0.5 + self.mask
        y = self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(4, 4, 16))
        y = y.view(1, 2, 2, 2, 2, 16).permute(0, 1, 3, 2, 4, 5).reshape(1, 4, 4, 16)
        return x + torch.roll(y, (1, 1), (1, 2))


class Up(nn.Module):
    """The corner of a UNet: down, up again by a transposed convolution, and joined."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.down = nn.Conv2d(3, 8, 3, 1, 1), nn.Conv2d(8, 16, 3, 2, 1)
        self.up, self.last = nn.ConvTranspose2d(16, 8, 2, 2), nn.Conv2d(16, 4, 1)
        self.smooth = nn.ConvTranspose2d(4, 4, 3, 2, 1, output_padding=1)

    def forward(self, x: Any) -> Any:
        x = functional.relu(self.first(x))
        y = self.up(functional.relu(self.down(x)))
        return self.smooth(self.last(torch.cat([x, y], 1)))


SHAPES = {Mobile: (1, 3, 32, 32), Encoder: (1, 12, 32), Windows: (1, 4, 4, 16), Up: (1, 3, 12, 16)}
# Codes by which the chip may differ, by the bits of the output.
STEPS = {8: 3, 16: 300}


def _example(shape: tuple[int, ...], seed: int = 0) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def _module(kind: type) -> Any:
    torch.manual_seed(1)
    return kind().eval()


def _export(kind: type, path: Path, recipe: str = "int8", **options: Any) -> Program:
    x = _example(SHAPES[kind])
    given = [x, _example(SHAPES[kind], 1)]
    options = {"recipe": recipe, "target": TARGET, "calibration": given, **options}
    return Program(satchel.export(_module(kind), (x,), path, **options))


def _cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float((a * b).sum() / np.linalg.norm(a) / np.linalg.norm(b))


@pytest.mark.parametrize(
    ("kind", "recipe", "least_snr"),
    [
        (Mobile, "int8", 15.0),
        (Mobile, "int8", 42.0),  # some layers in 8 bits and some in 16
        (Encoder, "int8", 15.0),
        (Encoder, "int8", 40.0),
        (Windows, "int8", 15.0),
        (Up, "int8", 15.0),
        (Encoder, "16a8w", 15.0),
    ],
)
def test_the_emulator_agrees_with_the_reference(
    kind: type, recipe: str, least_snr: float, tmp_path: Path
) -> None:
    program = _export(kind, tmp_path / "p.satchel", recipe, least_snr=least_snr)
    x = _example(SHAPES[kind], 2)
    instance = program.instance()
    assert instance.kernels == "qnn emulator"
    (got,) = instance.method("forward").run(x.numpy())
    (wanted,) = open_instance(program, reference=True).method("forward").run(x.numpy())
    (name,) = (v["name"] for v in program.methods[0]["outputs"])
    encoding = read_manifest(program).encodings[name]
    assert np.abs(got - wanted).max() / encoding.scale <= STEPS[encoding.bits] + 0.5
    assert _cosine(got, wanted) > 0.999
    with torch.no_grad():
        assert _cosine(got, _module(kind)(x).numpy()) > 0.99
    assert program.metadata["placement"]["fallbacks"] == []
    mixed = program.metadata["in_16_bits"]
    assert bool(mixed) == (least_snr > 15), program.metadata["layer_snr_db"]
    assert len(mixed) < len(program.metadata["layer_snr_db"])


class Ends(nn.Module):
    """What an NPU does not take lies before and after what it does."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.layer = nn.Embedding(20, 16), nn.Linear(16, 24)

    def forward(self, ids: Any) -> Any:
        scores = functional.relu(self.layer(self.table(ids))).sum(1)
        return scores, scores.argmax(1)


def test_the_cpu_does_what_the_npu_does_not(tmp_path: Path) -> None:
    torch.manual_seed(3)
    module, ids = Ends().eval(), torch.arange(1, 9)[None]
    options = {"recipe": "int8", "target": TARGET, "calibration": [ids, ids * 2]}
    program = Program(satchel.export(module, (ids,), tmp_path / "p.satchel", **options))
    placement = program.metadata["placement"]
    assert placement["nodes"]["qnn"] > 0
    found = {entry["op"]: entry["reason"] for entry in placement["fallbacks"]}
    assert set(found) == {"embedding", "argmax", "cast"}  # torch's argmax has 64 bits
    assert found["argmax"] == "the NPU backend has no op argmax"
    scores, best = program.instance().method("forward").run(ids.numpy().astype(np.int32))
    wanted, wanted_best = module(ids)
    assert _cosine(scores, wanted.detach().numpy()) > 0.999
    assert best.tolist() == wanted_best.tolist()


class Masked(nn.Module):
    """A mask as T5 makes it: zero, or the lowest number that there is."""

    def __init__(self, lowest: float) -> None:
        super().__init__()
        self.q, self.k, self.lowest = nn.Linear(16, 16), nn.Linear(16, 16), lowest

    def forward(self, x: Any, mask: Any) -> Any:
        hidden = (1.0 - mask)[:, None] * self.lowest
        return (self.q(x) @ self.k(x).transpose(1, 2) / 4 + hidden).softmax(-1) @ x


def test_a_mask_of_the_lowest_number(tmp_path: Path) -> None:
    torch.manual_seed(4)
    module = Masked(torch.finfo(torch.float32).min).eval()
    masks = [torch.tensor([[1.0] * n + [0.0] * (8 - n)]) for n in (5, 8, 3)]
    examples = [(_example((1, 8, 16), n), mask) for n, mask in enumerate(masks)]
    options = {"recipe": "int8", "target": TARGET, "calibration": examples[:2]}
    program = Program(satchel.export(module, examples[0], tmp_path / "p.satchel", **options))
    (got,) = program.instance().method("forward").run(*(x.numpy() for x in examples[2]))
    assert _cosine(got, module(*examples[2]).detach().numpy()) > 0.999


class Nothing(nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.sin(x), torch.cos(x)


def test_a_module_that_leaves_the_npu_nothing(tmp_path: Path) -> None:
    x = torch.randn(2, 3)
    options = {"recipe": "int8", "target": TARGET, "calibration": [x]}
    with pytest.raises(UnsupportedOperatorError, match=r"no op cos; sin: .* no op sin"):
        satchel.export(Nothing().eval(), (x,), tmp_path / "p.satchel", **options)
    assert not list(tmp_path.iterdir())


class Dead(nn.Module):
    """A layer that never gives anything, before one with a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.dead, self.next = nn.Linear(8, 8), nn.Linear(8, 4)
        self.dead.bias.data.fill_(-100.0)
        self.next.weight.data[1] = 0
        self.next.bias.data.copy_(torch.tensor([1.0, -2.0, 3.0, -4.0]))

    def forward(self, x: Any) -> Any:
        return self.next(functional.relu(self.dead(x))) + x[:, :4]


def test_a_bias_after_nothing_but_zeros(tmp_path: Path) -> None:
    """Steps of zero times anything are too small to count it in."""
    module, x = Dead().eval(), torch.randn(3, 8)
    options = {"recipe": "int8", "target": TARGET, "calibration": [x]}
    program = Program(satchel.export(module, (x,), tmp_path / "p.satchel", **options))
    got = program.method()(x.numpy())
    assert _cosine(got, module(x).detach().numpy()) > 0.999


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"recipe": "fp32"}, "does not run a module as fp32"),
        ({"overrides": {"head*": "fp32"}}, "all layers of a module have one recipe"),
        ({"calibration": None}, "needs examples"),
    ],
)
def test_what_an_npu_cannot_do(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=message):
        _export(Mobile, tmp_path / "p.satchel", **options)
    assert not list(tmp_path.iterdir())


def test_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vendor, "missing_packages", lambda: ["onnxruntime-qnn"])
    with pytest.raises(BackendError, match=r"needs onnxruntime-qnn.*pip install 'satchel\[qnn\]'"):
        _export(Mobile, tmp_path / "p.satchel")


def test_sizes_must_be_known(tmp_path: Path) -> None:
    x = torch.randn(2, 8)
    options = {"recipe": "int8", "target": TARGET, "calibration": [x]}
    options["dynamic_shapes"] = ({0: torch.export.Dim("batch", max=8)},)
    with pytest.raises(GraphError, match="known only when it runs"):
        satchel.export(nn.Linear(8, 4).eval(), (x,), tmp_path / "p.satchel", **options)


def test_six_dimensions_that_stay() -> None:
    b = GraphBuilder("forward")
    x = b.input("x", (2, 3, 2, 3, 2, 3))
    b.output(b.relu(x), "y")
    with pytest.raises(GraphError, match="more than 5 dimensions"):
        lower(b.finish(), 8)
    b = GraphBuilder("forward")
    x = b.input("x", (2, 3, 2, 3, 2, 3))
    b.output(b.transpose(x, perm=(5, 4, 3, 2, 1, 0)), "y")
    with pytest.raises(GraphError, match="more dimensions than the NPU takes"):
        lower(b.finish(), 8)


def test_a_binary_that_computes_something_else_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiler, "cosine", lambda *_: 0.5)
    with pytest.raises(BackendError, match="computes something else than the reference"):
        _export(Encoder, tmp_path / "p.satchel")
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("modules") / "classifier.satchel"
    classes = [f"thing {i}" for i in range(10)]
    metadata = class_metadata(Preprocessing(36, (32, 32)), classes)
    return _export(Mobile, path, metadata=metadata).path


def test_images_and_commands(
    classifier: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 255, (50, 40, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "photo.png")
    assert main(["run", str(classifier), "--input", str(tmp_path / "photo.png"), "--json"]) == 0
    said = capsys.readouterr()
    assert "runs on an emulator" in said.err
    ran = json.loads(said.out)
    wanted = Classifier(classifier).preprocessing.prepare(Image.fromarray(pixels))
    with torch.no_grad():
        best = int(_module(Mobile)(torch.from_numpy(wanted)).argmax())
    assert ran["kernels"] == "qnn emulator"
    assert ran["results"][0]["classes"][0]["label"] == f"thing {best}"
    assert main(["bench", str(classifier), "--runs", "1"]) == 0
    assert "emulator: not a speed" in capsys.readouterr().out
    assert main(["inspect", str(classifier)]) == 0
    assert "nodes on qnn; 0 fallbacks" in capsys.readouterr().out
    names = write_kit(Program(classifier), tmp_path / "kit")
    assert "tokenizer.json" not in names and "shard0.forward_qnn.bin" in names
    assert (tmp_path / "kit" / "classes.txt").read_text().splitlines()[3] == "thing 3"
    prepared = json.loads((tmp_path / "kit" / "preprocessing.json").read_text())
    assert Preprocessing.from_dict(prepared) == Preprocessing(36, (32, 32))
    with pytest.raises(ExecutionError, match=r"must have the shape \[1, 3, 32, 32\]"):
        Program(classifier).method()(np.zeros((1, 3, 16, 16), np.float32))
    with pytest.raises(ExecutionError, match="no method 'kv_forward'"):
        Program(classifier).method("kv_forward")


def test_a_manifest_without_an_encoding(classifier: Path) -> None:
    program = Program(classifier)
    manifest = read_manifest(program)
    del manifest.encodings["output"]
    with pytest.raises(ProgramFormatError, match="no encoding of output"):
        PreparedProgram.of(program, manifest)
