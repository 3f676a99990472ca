"""Ops that are done together with linear layers have the same bits as each alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from satchel.encodings.encoding import Encoding
from satchel.graph.builder import GraphBuilder
from satchel.graph.ir import DType, Graph, Sym
from satchel.runtime.program import load
from support.arrays import normal
from support.programs import write_program

COLS = 64
ROWS = {"q": 80, "k": 16, "v": 24, "five": 48, "other": 40, "rest": 33}
ENCODINGS = {
    "q": Encoding("matrix_q4", 32),
    "k": Encoding("matrix_q8", 32),
    "v": Encoding("matrix_q4", 32),
    "five": Encoding("matrix_q5", 32),
    "other": Encoding("matrix_q4", 16),  # another group: its input is quantised anew
    "rest": Encoding("matrix_lpbq4", 16),  # its results are multiplied with factors
}


def layers(name: str, *which: str) -> Graph:
    b = GraphBuilder(name)
    x = b.input("x", (Sym("S", 80), COLS))
    for weight in which:
        bias = b.weight(f"{weight}_bias", (ROWS[weight],)) if weight in "qv" else None
        w = b.weight(weight, (ROWS[weight], COLS))
        activation = "silu" if weight == "v" else "none"
        y = b.node("linear", x, w, bias, activations="int8", activation=activation)
        b.output(y, f"{weight}_out")
    return b.finish()


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("tokens", [1, 5, 80])
def test_together_as_alone(tmp_path: Path, tokens: int, threads: int) -> None:
    graphs = [layers("together", *ROWS), *(layers(f"only_{name}", name) for name in ROWS)]
    weights = {name: normal(rows, COLS, seed=i) for i, (name, rows) in enumerate(ROWS.items())}
    weights |= {f"{name}_bias": normal(ROWS[name]) for name in "qv"}
    program = load(write_program(tmp_path / "p.satchel", graphs, weights, ENCODINGS))
    instance = program.instance(threads)
    x = normal(tokens, COLS, seed=9)
    together = dict(
        zip((f"{n}_out" for n in ROWS), instance.method("together").run(x), strict=True)
    )
    for name in ROWS:
        alone = np.asarray(instance.method(f"only_{name}")(x))
        assert np.abs(alone).max() > 0
        np.testing.assert_array_equal(together[f"{name}_out"], alone)


HIDDEN, FFN = 64, 200


def mlp(name: str, kept: bool, gate: str) -> Graph:
    """A norm, two layers with a gate, one with a residual; ``kept``: every value is an output,
    which leaves the gate and the addition to themselves."""
    b = GraphBuilder(name)
    x = b.input("x", (Sym("S", 300), HIDDEN))
    weights = {n: b.weight(n, (FFN, HIDDEN)) for n in ("gate", "up")}
    normed = b.node("rms_norm", x, b.weight("norm", (HIDDEN,)), eps=1e-6)
    bias = b.weight("gate_bias", (FFN,))
    first = b.node("linear", normed, weights["gate"], bias, activations="int8")
    second = b.node("linear", normed, weights["up"], activations="int8")
    hidden = b.node(gate, first, second)
    down = b.node("linear", hidden, b.weight("down", (HIDDEN, FFN)), activations="int8")
    values = {"sum": b.add(x, down)}
    if kept:
        values |= {"normed": normed, "first": first, "second": second, "hidden": hidden}
        values["down"] = down
    for label, value in values.items():
        b.output(value, label)
    return b.finish()


@pytest.mark.parametrize("gate", ["silu_mul", "gelu_tanh_mul"])
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_norm_gate_and_residual_join(tmp_path: Path, threads: int, gate: str) -> None:
    shapes = {"gate": (FFN, HIDDEN), "up": (FFN, HIDDEN), "down": (HIDDEN, FFN)}
    weights = {name: normal(*shape, seed=i) for i, (name, shape) in enumerate(shapes.items())}
    weights |= {"norm": normal(HIDDEN, seed=4), "gate_bias": normal(FFN, seed=5)}
    encodings = {name: Encoding("matrix_q4", 8) for name in shapes}
    graphs = [mlp("together", False, gate), mlp("apart", True, gate)]
    program = load(write_program(tmp_path / "p.satchel", graphs, weights, encodings))
    instance = program.instance(threads)
    for tokens in (1, 2, 63, 64, 130, 300):
        x = normal(tokens, HIDDEN, seed=tokens)
        instance.start_profile()
        together = np.asarray(instance.method("together")(x))
        assert {op for op, (_, seconds) in instance.take_profile()[0].items() if seconds} == {
            "linear"
        }
        instance.start_profile()
        apart = instance.method("apart")(x)
        assert {op for op, (_, seconds) in instance.take_profile()[0].items() if seconds} == {
            *("linear", gate, "add")
        }
        assert isinstance(apart, dict)
        np.testing.assert_array_equal(together, apart["sum"])
        np.testing.assert_array_equal(together, x + apart["down"])
        root = np.sqrt((x.astype(np.float64) ** 2).mean(-1, keepdims=True) + 1e-6)
        np.testing.assert_allclose(apart["normed"], x / root * weights["norm"], rtol=1e-5)


def test_a_value_that_is_also_read_in_another_shape_is_there(tmp_path: Path) -> None:
    """The reshape is no node of the program: its result lies where the layer's does."""
    b = GraphBuilder("forward")
    x = b.input("x", (Sym("S", 8), COLS))
    y = b.node("linear", x, b.weight("w", (COLS, COLS)), activations="int8")
    split = b.node("reshape", y, shape=(0, 2, COLS // 2))
    b.output(b.add(x, y), "sum")
    b.output(b.affine(split, scale=3.0, shift=0.0), "split")
    weights = {"w": normal(COLS, COLS)}
    encodings = {"w": Encoding("matrix_q4", 16)}
    program = load(write_program(tmp_path / "p.satchel", [b.finish()], weights, encodings))
    assert "reshape" not in program.methods[0]["ops"]
    given = normal(5, COLS, seed=2)
    total, thirds = program.instance(1).method("forward").run(given)
    np.testing.assert_allclose(thirds.reshape(5, COLS) / 3 + given, total, rtol=1e-5, atol=1e-5)


def integer_block(name: str, kept: bool) -> Graph:
    """A layer of codes whose result is added to something else; ``kept``: it is also an output,
    which leaves the addition to itself."""
    b = GraphBuilder(name)
    x = b.input("x", (Sym("S", 300), HIDDEN))
    codes = b.node("quantize", x, scale=0.03, zero=120)
    factors = [b.weight("scale", (HIDDEN,)), b.weight("bias", (HIDDEN,))]
    weight = b.weight("w", (HIDDEN, HIDDEN), dtype=DType.i8)
    layer = b.node("qlinear", codes, weight, *factors, x_zero=120)
    b.output(b.add(layer, x), "sum")
    if kept:
        b.output(layer, "layer")
    return b.finish()


@pytest.mark.parametrize("threads", [1, 2])
def test_an_addition_joins_a_layer_of_codes(tmp_path: Path, threads: int) -> None:
    integers = np.random.default_rng(3).integers(-127, 128, (HIDDEN, HIDDEN))
    weights = {"w": integers.astype(np.float32), "bias": normal(HIDDEN, seed=2)}
    weights["scale"] = np.abs(normal(HIDDEN, seed=1)) * np.float32(1e-3)
    encodings = {"w": Encoding("matrix_i8")}
    graphs = [integer_block("together", False), integer_block("apart", True)]
    program = load(write_program(tmp_path / "p.satchel", graphs, weights, encodings))
    instance = program.instance(threads)
    for tokens in (1, 17, 130, 300):
        x = normal(tokens, HIDDEN, seed=tokens)
        instance.start_profile()
        together = np.asarray(instance.method("together")(x))
        spent = {op for op, (_, seconds) in instance.take_profile()[0].items() if seconds}
        assert spent == {"quantize", "qlinear"}
        apart = instance.method("apart")(x)
        assert isinstance(apart, dict)
        np.testing.assert_array_equal(together, apart["sum"])
        np.testing.assert_array_equal(together, apart["layer"] + x)
        # Against numpy: halves to even, sums exact, then floats step by step.
        codes = np.clip(np.rint(x * (1 / np.float32(0.03))) + 120, 0, 255).astype(np.int64)
        sums = ((codes - 120) @ integers.T).astype(np.float32)
        expected = sums * weights["scale"] + weights["bias"] + x
        np.testing.assert_allclose(together, expected, rtol=1e-6, atol=1e-6)


def float_block(name: str, inner: int, kept: bool) -> Graph:
    """A layer and an addition, two layers and an addition; ``kept``: what is in between is also an
    output, which leaves every op to itself."""
    b = GraphBuilder(name)
    x = b.input("x", (Sym("S", 300), HIDDEN))
    scaled = b.affine(x, scale=0.5, shift=0.25)
    first = b.node(
        "linear", scaled, b.weight("first", (HIDDEN, HIDDEN)), b.weight("bias", (HIDDEN,))
    )
    middle = b.add(scaled, first)
    up = b.node("linear", middle, b.weight(f"up_{inner}", (inner, HIDDEN)), activation="relu")
    down = b.node("linear", up, b.weight(f"down_{inner}", (HIDDEN, inner)))
    b.output(b.add(down, middle), "sum")
    for value in (first, up, down) if kept else ():
        b.output(value, f"kept_{value.name}")
    return b.finish()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("encoding", ["matrix_f32", "matrix_f16"])
def test_layers_of_floats_join_each_other_and_additions(
    tmp_path: Path, encoding: str, threads: int
) -> None:
    """1,024 floats are rows that collide in a cache: the second layer wants them longer."""
    inners = (1024, 96)
    weights = {"first": normal(HIDDEN, HIDDEN, seed=1), "bias": normal(HIDDEN, seed=2)}
    for inner in inners:
        weights[f"up_{inner}"] = normal(inner, HIDDEN, seed=3) / np.float32(8)
        weights[f"down_{inner}"] = normal(HIDDEN, inner, seed=4) / np.float32(32)
    half = encoding == "matrix_f16"
    weights = {
        n: w.astype(np.float16).astype(np.float32) if half else w for n, w in weights.items()
    }
    encodings = {name: Encoding(encoding) for name in weights if name != "bias"}
    graphs = [
        float_block(f"{name}_{inner}", inner, name == "apart")
        for inner in inners
        for name in ("together", "apart")
    ]
    program = load(write_program(tmp_path / "p.satchel", graphs, weights, encodings))
    instance = program.instance(threads)
    for inner in inners:
        for tokens in (1, 17, 28, 130, 300):
            x = normal(tokens, HIDDEN, seed=tokens)
            instance.start_profile()
            together = np.asarray(instance.method(f"together_{inner}")(x))
            spent = {op for op, (_, seconds) in instance.take_profile()[0].items() if seconds}
            assert spent == {"affine", "linear"}
            apart = instance.method(f"apart_{inner}")(x)
            assert isinstance(apart, dict)
            np.testing.assert_array_equal(together, apart["sum"])
            wide = {name: w.astype(np.float64) for name, w in weights.items()}
            scaled = x.astype(np.float64) * 0.5 + 0.25
            middle = scaled + scaled @ wide["first"].T + wide["bias"]
            inside = np.maximum(middle @ wide[f"up_{inner}"].T, 0)
            expected = inside @ wide[f"down_{inner}"].T + middle
            np.testing.assert_allclose(together, expected, rtol=1e-4, atol=1e-4)
