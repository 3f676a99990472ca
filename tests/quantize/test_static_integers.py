"""Graphs in integers: the plan, and native runs against the reference's rounded run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import satchel
from satchel.encodings.encoding import Encoding
from satchel.graph.builder import GraphBuilder
from satchel.graph.ir import DType, Graph, Value
from satchel.graph.ops.quantized import LIMITS
from satchel.graph.passes.fusion import separate_activations
from satchel.graph.reference import ReferenceInterpreter
from satchel.quantize.static import (
    ActivationEncoding,
    HeadSteps,
    PlannedInterpreter,
    attention_name,
    calibrate,
    layer_noise,
    lower_integers,
    own_noise,
    plan_integers,
    quantize_rows,
    read_lowered,
)
from support.arrays import normal
from support.integer_layers import LayerComparison
from support.programs import write_program

Array = np.ndarray[Any, Any]


class Net:
    """A float graph with its weights."""

    def __init__(self) -> None:
        self.b = GraphBuilder("forward")
        self.weights: dict[str, Array] = {}

    def conv(self, x: Value, outputs: int, size: int, **attrs: Any) -> Value:
        channels = int(x.shape[-1]) // int(attrs.get("groups", 1))  # type: ignore[arg-type]
        name = f"conv{len(self.weights)}"
        cols = size * size * channels
        self.weights[name] = normal(outputs, cols, seed=name, scale=cols**-0.5)
        bias = self.b.constant(f"{name}.bias", normal(outputs, seed=name, scale=0.1))
        pad = (size // 2,) * 4
        options = {"kernel": (size, size), "padding": pad, **attrs}
        return self.b.conv2d(x, self.b.weight(name, (outputs, cols)), bias, **options)  # type: ignore[no-any-return]

    def linear(self, x: Value, outputs: int) -> Value:
        name, cols = f"linear{len(self.weights)}", int(x.shape[-1])  # type: ignore[arg-type]
        self.weights[name] = normal(outputs, cols, seed=name, scale=cols**-0.5)
        return self.b.linear(x, self.b.weight(name, (outputs, cols)))  # type: ignore[no-any-return]

    def finish(self, out: Value) -> Graph:
        self.b.output(out, "y")
        return self.b.finish()


def vision() -> tuple[Graph, dict[str, Array], tuple[int, ...]]:
    """Everything that runs on codes: residuals, gates, pooling, concat, padding, a mean."""
    net = Net()
    b = net.b
    x = b.transpose(b.input("x", (1, 3, 11, 9)), perm=(0, 2, 3, 1))
    x = b.max_pool2d(net.conv(x, 8, 3, stride=(2, 2), activation="hardswish"), kernel=(2, 2))
    x = b.relu(b.add(net.conv(x, 8, 3), x))
    wide = net.conv(x, 16, 1, activation="relu6")
    deep = net.conv(wide, 16, 3, groups=16, activation="silu")
    gate = net.conv(b.reduce_mean(deep, axes=(1, 2), keepdims=1), 16, 1, activation="hardsigmoid")
    x = b.concat(b.mul(deep, gate), b.gelu(wide), axis=3)
    x = b.pad(x, before=(0, 1, 0, 0), after=(0, 0, 2, 0))
    x = b.add(net.conv(x, 8, 1), net.conv(x, 8, 3))
    x = b.reshape(b.reduce_mean(b.slice(x, axis=1, start=1, stop=5), axes=(1, 2)), shape=(1, 8))
    return net.finish(net.linear(x, 5)), net.weights, (1, 3, 11, 9)


def transformer() -> tuple[Graph, dict[str, Array], tuple[int, ...]]:
    """A residual stream that a norm reads stays in floats."""
    net = Net()
    b = net.b
    x = stream = b.input("x", (2, 5, 16))
    ones = b.constant("ones", np.ones(16, np.float32))
    for _ in range(2):
        x = b.layer_norm(stream, ones, eps=1e-5)
        x = b.transpose(b.reshape(x, shape=(2, 5, 4, 4)), perm=(0, 1, 3, 2))
        x = net.linear(b.gelu(net.linear(b.reshape(x, shape=(2, 5, 16)), 24)), 16)
        stream = b.add(stream, x)
    return net.finish(stream), net.weights, (2, 5, 16)


def windows() -> tuple[Graph, dict[str, Array], tuple[int, ...]]:
    """Attention within windows of rows that do not lie together, with a bias."""
    net = Net()
    b = net.b
    x = stream = b.input("x", (1, 12, 16))
    ones = b.constant("ones", np.ones(16, np.float32))
    rows = b.constant("rows", np.arange(12, dtype=np.int32).reshape(4, 3).T.copy())
    bias = b.constant("bias", normal(1, 2, 4, 4, seed="bias"))
    for _ in range(2):
        x = net.linear(b.layer_norm(stream, ones, eps=1e-5), 48)
        x = b.reshape(x, shape=(1, 12, 3, 2, 8))
        x = b.attention_qkv(x, bias, rows, scale=0.35)
        stream = b.add(stream, net.linear(b.reshape(x, shape=(1, 12, 16)), 16))
    return net.finish(stream), net.weights, (1, 12, 16)


NETS = {"vision": vision, "transformer": transformer, "windows": windows}


def _prepared(name: str) -> Any:
    graph, weights, shape = NETS[name]()
    examples = [{"x": normal(*shape, seed=i)} for i in range(3)]
    read = lambda w: weights[w.name]  # noqa: E731
    heads: dict[str, HeadSteps] = {}
    plan = plan_integers(graph, calibrate(graph, read, examples, heads=heads), (), heads)
    return graph, weights, read, plan, examples


@pytest.mark.parametrize("name", NETS)
def test_a_native_run_is_the_references_to_one_step(name: str, tmp_path: Path) -> None:
    graph, weights, read, plan, examples = _prepared(name)
    lowered = lower_integers(graph, plan, read)
    kinds = dict.fromkeys(lowered.codes, Encoding("matrix_i8"))
    path = write_program(
        tmp_path / "x.satchel", [lowered.graph], {**weights, **lowered.codes}, kinds
    )
    method = satchel.load(path).method()
    reader = read_lowered(lowered.codes, read)
    rounded = PlannedInterpreter(read, plan, graph)
    for example in examples:
        got = method.run(**example)[0]
        want = ReferenceInterpreter(reader).run(lowered.graph, example)["y"]
        assert np.abs(got - want).max() <= 1e-5 * np.abs(want).max()
        # The rounded float run differs where a sum falls on the edge between two codes.
        near = rounded.run(example)["y"]
        assert np.abs(got - near).max() <= 0.03 * np.abs(near).max()


@pytest.mark.parametrize("name", NETS)
def test_every_node_is_the_quantised_runs_to_one_step(name: str, tmp_path: Path) -> None:
    """From the same codes: what a node before it has rounded the other way is not counted again."""
    graph, weights, _, plan, examples = _prepared(name)
    run = LayerComparison(graph, plan, weights, examples[0], tmp_path / "x.satchel")
    found = run.differences()
    layers = {one.name for one in found if one.op in ("conv2d", "linear")}
    merged = {one.layer.inputs[1].name for one in plan.residuals.values() if one.layer.inputs[1]}
    assert layers | merged == set(weights)
    for one in found:
        assert one.steps is None or one.steps <= 1, one
        assert one.relative is None or one.relative < 1e-4, one


def test_a_vision_model_never_leaves_8_bits() -> None:
    graph, _, read, plan, _ = _prepared("vision")
    ops = [node.op for node in lower_integers(graph, plan, read).graph.nodes]
    assert ops.count("quantize") == 1 and "dequantize" not in ops
    known = {"quantize", "transpose", "qconv2d", "max_pool2d", "qmean", "qmul", "lookup", "concat"}
    assert set(ops) == known | {"pad", "slice", "reshape", "qlinear"}


@pytest.mark.parametrize("name", ["vision", "transformer"])
def test_a_plain_plan_goes_from_codes_to_codes(name: str, tmp_path: Path) -> None:
    graph, weights, read, _, examples = _prepared(name)
    separate_activations(graph, LIMITS)
    plan = plan_integers(graph, calibrate(graph, read, examples), plain=True)
    lowered = lower_integers(graph, plan, read)
    layers = [node for node in lowered.graph.nodes if node.op in ("qconv2d", "qlinear")]
    assert len(layers) == len(weights)
    for node in layers:
        assert node.outputs[0].dtype == DType.u8 and len(node.inputs) < 5  # no residual
        assert node.attrs.get("activation", "none") in LIMITS
    ops = [node.op for node in lowered.graph.nodes]
    assert "lookup" not in ops and "dequantize" in ops
    kinds = dict.fromkeys(lowered.codes, Encoding("matrix_i8"))
    path = write_program(
        tmp_path / "x.satchel", [lowered.graph], {**weights, **lowered.codes}, kinds
    )
    method, rounded = satchel.load(path).method(), PlannedInterpreter(read, plan, graph)
    for example in examples:
        got = method.run(**example)[0]
        near = rounded.run(example)["y"]
        assert np.abs(got - near).max() <= 0.03 * np.abs(near).max()


def test_a_limit_behind_a_sum_is_part_of_it() -> None:
    net = Net()
    b = net.b
    x = net.conv(b.input("x", (1, 6, 6, 4)), 4, 1)
    y = net.conv(b.relu(b.add(net.conv(x, 4, 1), net.conv(x, 4, 1))), 4, 1)
    graph, read = net.finish(y), lambda w: net.weights[w.name]
    plan = plan_integers(
        graph, calibrate(graph, read, [{"x": normal(1, 6, 6, 4, seed="x")}]), plain=True
    )
    (pair,) = [n for n in lower_integers(graph, plan, read).graph.nodes if n.op == "qadd"]
    assert pair.attrs["activation"] == "relu"


def test_a_row_of_nothing_has_a_step_for_its_bias() -> None:
    rows = np.array([[0.0, 0.0], [1.27, 0.0], [12.7, -3.0]], np.float32)
    codes, scales = quantize_rows(rows)
    assert codes[0].tolist() == [0, 0]
    np.testing.assert_allclose(scales, [0.01, 0.01, 0.1], rtol=1e-6)
    assert quantize_rows(np.zeros((2, 3), np.float32))[1].tolist() == [1.0, 1.0]


def test_a_residual_stream_stays_in_floats() -> None:
    graph, _, read, plan, _ = _prepared("transformer")
    ops = [node.op for node in lower_integers(graph, plan, read).graph.nodes]
    assert ops.count("add") == ops.count("layer_norm") == 2 and "quantize" not in ops
    assert "dequantize" not in ops and "qadd" not in ops


def test_attention_runs_on_codes_between_its_layers() -> None:
    graph, _, read, plan, examples = _prepared("windows")
    ops = [node.op for node in lower_integers(graph, plan, read).graph.nodes]
    block = ["layer_norm", "qlinear", "reshape", "qattention_qkv", "reshape", "qlinear", "add"]
    assert ops == 2 * block
    # Beside a layer in floats it gives floats, and without steps it is in floats itself.
    encodings = calibrate(graph, read, examples)
    plan = plan_integers(graph, encodings, {"linear1"}, _steps(graph))
    lowered = lower_integers(graph, plan, read).graph
    kinds = {node.op: node.outputs[0].dtype for node in lowered.nodes[:6]}
    assert kinds["qattention_qkv"] == DType.f32 and kinds["linear"] == DType.f32
    plan = plan_integers(graph, encodings, {"linear0"}, _steps(graph))
    ops = [node.op for node in lower_integers(graph, plan, read).graph.nodes]
    assert ops.count("attention_qkv") == 1 and ops.count("qattention_qkv") == 1


def _steps(graph: Graph) -> dict[str, HeadSteps]:
    attentions = [n for n in graph.nodes if n.op == "attention_qkv"]
    same = HeadSteps(np.full((3, 2), 0.02, np.float32))
    return {n.inputs[0].name: same for n in attentions if n.inputs[0] is not None}


def test_noise_finds_bad_attention() -> None:
    graph, _, read, _, examples = _prepared("windows")
    heads: dict[str, HeadSteps] = {}
    encodings = calibrate(graph, read, examples, heads=heads)
    usual = own_noise(graph, read, encodings, examples[0], heads)
    (first, second) = heads
    assert 25 < usual[first] < 60 and 25 < usual[second] < 60
    heads[first] = HeadSteps(heads[first].scales * 60)
    noisy = own_noise(graph, read, encodings, examples[0], heads)
    assert noisy[first] < 12 and noisy[second] == usual[second]
    assert attention_name(graph, first) == "linear0"


def test_layers_can_be_left_in_floats() -> None:
    graph, weights, read, _, examples = _prepared("vision")
    encodings = calibrate(graph, read, examples)
    plan = plan_integers(graph, encodings, {"conv1", "conv4"})
    lowered = lower_integers(graph, plan, read)
    ops = [node.op for node in lowered.graph.nodes]
    assert ops.count("conv2d") == 2 and set(lowered.codes) == set(weights) - {"conv1", "conv4"}
    reader = read_lowered(lowered.codes, read)
    got = ReferenceInterpreter(reader).run(lowered.graph, examples[0])["y"]
    near = PlannedInterpreter(read, plan, graph).run(examples[0])["y"]
    assert np.abs(got - near).max() <= 0.03 * np.abs(near).max()


def test_calibration_is_the_same_on_the_cpu_backend() -> None:
    graph, _, read, _, examples = _prepared("vision")
    slow, quick = (calibrate(graph, read, examples, native=n) for n in (False, True))
    assert slow.keys() == quick.keys()
    for name, one in slow.items():
        assert quick[name].scale == pytest.approx(one.scale, rel=1e-4)
        assert abs(quick[name].zero_point - one.zero_point) <= 1


def test_noise_finds_a_bad_layer() -> None:
    graph, weights, read, plan, examples = _prepared("vision")
    usual = layer_noise(graph, read, plan, examples)
    assert set(usual) == set(weights) and all(15 < value < 80 for value in usual.values())
    # A range that is far too wide for the input of one layer.
    (layer,) = (n for n in graph.nodes if any(v and v.name == "conv2" for v in n.inputs))
    assert layer.inputs[0]
    plan.encodings[layer.inputs[0].name] = ActivationEncoding.of_range(-400, 400)
    noisy = layer_noise(graph, read, plan, examples)
    assert noisy["conv0"] == usual["conv0"] and noisy["conv2"] < usual["conv2"] - 10
