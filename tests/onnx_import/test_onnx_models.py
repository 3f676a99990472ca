"""Whole ONNX models, as PyTorch writes them: the module's own numbers, sizes, recipes, errors."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from torch import nn

import satchel
from satchel.cli.main import main
from satchel.errors import ImportModuleError, RecipeError, UnsupportedOperatorError
from satchel.onnx.operators import OPERATORS
from support.compare import relative_difference


class Classifier(nn.Module):
    """A stem, a residual block with depthwise layers, and what classifiers end with."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.Hardswish())
        self.block = nn.Sequential(nn.Conv2d(16, 16, 3, 1, 1, groups=16), nn.PReLU(16))
        self.head = nn.Linear(16 * 4, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        x = x + self.block(x)
        x = nn.functional.max_pool2d(x, 3, 2, 1)
        x = nn.functional.interpolate(x, scale_factor=2.0, mode="bilinear")
        x = nn.functional.adaptive_avg_pool2d(x, 2)
        return self.head(x.flatten(1)).log_softmax(-1)


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 32)
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, activation="gelu")

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.table(ids)
        return self.layer(x).mean(1)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 12, bidirectional=True)
        self.gru = nn.GRU(24, 6)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        out, _ = self.lstm(x)
        made, last = self.gru(out)
        return made, last


class Unet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(2, 8, 4, 2, 1)
        self.up = nn.ConvTranspose2d(8, 8, 2, 2)
        self.norm = nn.InstanceNorm2d(8, affine=True)
        self.last = nn.Conv2d(10, 3, 1)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        y = self.norm(self.up(nn.functional.leaky_relu(self.down(x), 0.2)))
        return self.last(torch.cat([x, y], 1)).sigmoid()


MODELS: dict[str, tuple[type[nn.Module], Any]] = {
    "classifier": (Classifier, lambda: torch.randn(2, 3, 16, 16)),
    "encoder": (Encoder, lambda: torch.randint(0, 50, (2, 7))),
    "recurrent": (Recurrent, lambda: torch.randn(5, 2, 8)),
    "unet": (Unet, lambda: torch.randn(1, 2, 12, 12)),
}


def write(folder: Path, name: str, **options: Any) -> tuple[Path, nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    made, example = MODELS[name]
    module, x = made().eval(), example()
    path = folder / f"{name}.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, (x,), path, dynamo=False, input_names=["x"], **options)
    return path, module, x


@pytest.mark.parametrize("name", MODELS)
def test_numbers_are_those_of_the_module(tmp_path: Path, name: str) -> None:
    path, module, x = write(tmp_path, name)
    program = satchel.load(satchel.export(path, tmp_path / "m.satchel"))
    assert program.metadata["provenance"]["format"] == "onnx"
    got = program.method().run(x.numpy())
    with torch.no_grad():
        wanted = module(x)
    listed = wanted if isinstance(wanted, tuple) else (wanted,)
    for mine, theirs in zip(got, listed, strict=True):
        np.testing.assert_allclose(mine, theirs.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("recipe", ["fp16", "int8", "8a8w"])
def test_recipes_of_modules(tmp_path: Path, recipe: str) -> None:
    path, module, x = write(tmp_path, "classifier")
    examples = {"calibration": [x.numpy()]} if recipe == "int8" else {}
    program = satchel.load(satchel.export(path, tmp_path / "m.satchel", recipe=recipe, **examples))
    with torch.no_grad():
        wanted = module(x).numpy()
    assert relative_difference(program.method()(x.numpy()), wanted) < 0.1


def test_sizes_that_the_model_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    axes = {"x": {0: "batch", 1: "sequence"}}
    path, module, _ = write(tmp_path, "encoder", dynamic_axes=axes)
    with pytest.raises(ImportModuleError, match="leaves the size sequence .* open"):
        satchel.export(path, tmp_path / "m.satchel")
    with pytest.raises(ImportModuleError, match="no input has the size 'length'"):
        satchel.export(path, tmp_path / "m.satchel", sizes={"length": 3})
    with pytest.raises(ImportModuleError, match="the size sequence is -7"):
        satchel.export(path, tmp_path / "m.satchel", sizes={"sequence": -7})
    output = tmp_path / "m.satchel"
    arguments = ["export", str(path), "-o", str(output), "--size", "batch=3", "--size"]
    assert main([*arguments, "sequence"]) == 1
    assert "is not NAME=N" in capsys.readouterr().err
    assert main([*arguments, "sequence=7"]) == 0
    ids = torch.randint(0, 50, (3, 7))
    with torch.no_grad():
        wanted = module(ids).numpy()
    got = satchel.load(output).method()(ids.numpy())
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def small_model(node: Any, **constants: Any) -> Any:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    stored = [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()]
    return helper.make_model(helper.make_graph([node], "g", [x], [y], stored))


def test_what_is_not_supported_is_named(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(small_model(helper.make_node("Unique", ["x"], ["y"], name="found")), path)
    with pytest.raises(UnsupportedOperatorError, match="Unique .* in found"):
        satchel.export(path, tmp_path / "m.satchel")
    onnx.save(small_model(helper.make_node("Relu", ["x"], ["y"], domain="com.acme")), path)
    with pytest.raises(UnsupportedOperatorError, match="Relu .of the set com.acme"):
        satchel.export(path, tmp_path / "m.satchel")
    path.write_bytes(b"no model")
    with pytest.raises(ImportModuleError, match="is no ONNX model"):
        satchel.export(path, tmp_path / "m.satchel")


def test_as_many_results_as_the_numbers_say(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    model = small_model(helper.make_node("NonZero", ["x"], ["y"]))
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
    onnx.save(model, path)
    method = satchel.load(satchel.export(path, tmp_path / "m.satchel")).method()
    for x in ([[1, 0, 2], [0, 0, 3]], [[0, 0, 0], [0, 0, 0]], [[1, 1, 1], [1, 1, 1]]):
        given = np.array(x, np.float32)
        np.testing.assert_array_equal(method(given), np.array(np.nonzero(given)))


def test_operators_that_onnx_writes_with_others(tmp_path: Path) -> None:
    """Swish has no function here, and is written out by ONNX's own definition."""
    assert "Swish" not in OPERATORS
    path, x = tmp_path / "m.onnx", np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3)
    onnx.save(small_model(helper.make_node("Swish", ["x"], ["y"], alpha=2.0)), path)
    got = satchel.load(satchel.export(path, tmp_path / "m.satchel")).method()(x)
    np.testing.assert_allclose(got, x / (1 + np.exp(-2 * x)), rtol=1e-5, atol=1e-6)


SEQUENCE = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[4, 3] x) => (float[3, 4] y, float[1, 3] z, int64 n) {
  whole = SplitToSequence <axis = 0, keepdims = 0> (x)
  first = Constant <value = int64 {0}> ()
  last = Constant <value = int64 {-1}> ()
  two = Constant <value = int64[2] {1, 3}> ()
  row = SequenceAt (whole, last)
  longer = SequenceInsert (whole, row, first)
  shorter = SequenceErase (longer)
  y = ConcatFromSequence <axis = 1, new_axis = 1> (shorter)
  n = SequenceLength (longer)
  parts = SplitToSequence <axis = 0> (x, two)
  z = SequenceAt (parts, first)
}
"""


def test_sequences_are_those_of_onnx(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(SEQUENCE)
    onnx.save(model, tmp_path / "m.onnx")
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    method = satchel.load(satchel.export(tmp_path / "m.onnx", tmp_path / "m.satchel")).method()
    wanted = ReferenceEvaluator(model).run(None, {"x": x})
    for mine, theirs in zip(method.run(x), wanted, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_loops_within_loops_are_bounded(tmp_path: Path) -> None:
    many = numpy_helper.from_array(np.array(900), "many")
    number = helper.make_tensor_value_info("i", TensorProto.INT64, [])
    go_on = helper.make_tensor_value_info("go", TensorProto.BOOL, [])
    carried = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])
    made = [helper.make_tensor_value_info("go_on", TensorProto.BOOL, [])]
    made.append(helper.make_tensor_value_info("r", TensorProto.FLOAT, [2, 3]))
    nodes = [helper.make_node("Identity", ["go"], ["go_on"])]
    inner = [*nodes, helper.make_node("Relu", ["x"], ["r"])]
    body = helper.make_graph(inner, "inner", [number, go_on, carried], made)
    outer = [*nodes, helper.make_node("Loop", ["many", "", "x"], ["r"], body=body)]
    body = helper.make_graph(outer, "outer", [number, go_on, carried], made)
    model = small_model(helper.make_node("Loop", ["many", "", "x"], ["y"], body=body))
    model.graph.initializer.append(many)
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(UnsupportedOperatorError, match="more than 10000 graphs"):
        satchel.export(tmp_path / "m.onnx", tmp_path / "m.satchel")


def test_int8_on_the_command_line_is_for_python(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(small_model(helper.make_node("Relu", ["x"], ["y"])), path)
    assert main(["export", str(path), "--recipe", "int8"]) == 1
    assert "calibrated with arrays" in capsys.readouterr().err
    with pytest.raises(RecipeError, match="int9"):
        satchel.export(path, recipe="int9")


def test_an_attribute_that_nobody_reads_is_refused(tmp_path: Path) -> None:
    """Unless it is the usual one, or changes nothing."""

    def model(**attributes: Any) -> Path:
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 4])
        y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3, 4])
        node = helper.make_node("Relu", ["x"], ["y"], **attributes)
        graph = helper.make_graph([node], "g", [x], [y])
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
        onnx.save(made, tmp_path / "m.onnx")
        return tmp_path / "m.onnx"

    with pytest.raises(UnsupportedOperatorError, match="Relu.*the attribute steepness=2"):
        satchel.export(model(steepness=2), tmp_path / "a.satchel")
    satchel.export(model(consumed_inputs=[0]), tmp_path / "b.satchel")
