"""Blocks of tokens. Layers: all encodings that are multiplied in bytes, sizes around those of
blocks, what is done together with a layer, and the bits of a token alone; and attention."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from backends.vulkan.rows import on_device
from satchel.encodings.encoding import Encoding
from satchel.graph.builder import GraphBuilder
from satchel.graph.ir import DType, Sym
from satchel.runtime.program import Program
from support.arrays import integers, normal
from support.programs import stored_values, write_program

MOST = 150
# Rows of matrices of one input, which are done together; of a gate and what it lets through, of a
# layer whose result is added to what was there, and of one that takes many workgroups.
ROWS = {"q": 83, "k": 16, "v": 130, "gate": 72, "up": 72, "down": 37, "head": 1410}
# Whole tiles of 16 rows.
EVEN_ROWS = {"q": 96, "k": 16, "v": 144, "gate": 80, "up": 80, "down": 48, "head": 1408}
PRODUCTS = {"int8": "silu_mul", "int16": "gelu_tanh_mul"}
FORMS = [
    ("int8", "matrix_q4", 32, 2080),
    ("int8", "matrix_q4", 128, 3072),
    ("int16", "matrix_q4", 256, 256),
    ("int8", "matrix_q4_steps", 32, 1120),
    ("int16", "matrix_q4_steps", 128, 4480),
    ("int8", "matrix_q8", 32, 96),
    ("int16", "matrix_q8", 64, 2112),
    ("int8", "matrix_lpbq4", 64, 192),
    ("int16", "matrix_lpbq4", 32, 32),
    ("int8", "matrix_q4_min", 32, 2176),
    ("int16", "matrix_q4_offset", 64, 320),
    ("int8", "matrix_q8_offset", 256, 2304),
]


def written(
    folder: Path, activations: str, kind: Encoding, weights: dict[str, NDArray[Any]]
) -> tuple[Path, Any]:
    """A program with its weights' numbers, and biases of the first three layers."""
    cols = weights["q"].shape[1]
    biases = {f"{name}_bias": normal(len(weights[name]), seed=name) for name in "qkv"}
    b = GraphBuilder("forward")
    size = Sym("S", MOST)
    x, z = b.input("x", (size, cols)), b.input("z", (size, len(weights["down"])))

    def linear(x: Any, name: str, **attrs: Any) -> Any:
        weight = b.weight(name, weights[name].shape, "linear")
        bias = f"{name}_bias"
        given = [b.weight(bias, biases[bias].shape, "vector")] if bias in biases else []
        return b.node("linear", x, weight, *given, activations=activations, **attrs)

    for name in "qkv":
        b.output(linear(x, name, activation="relu"), name)
    other = b.neg(x)
    product = PRODUCTS[activations]
    b.output(b.node(product, linear(other, "gate"), linear(other, "up")), "product")
    b.output(b.add(linear(b.abs(x), "down"), z), "sum")
    b.output(linear(b.neg(other), "head"), "head")
    kinds = {**dict.fromkeys(weights, kind), **dict.fromkeys(biases, Encoding("f32"))}
    path = write_program(folder / "p.satchel", [b.finish()], {**weights, **biases}, kinds)
    stored = {name: stored_values(w, kind).astype(np.float64) for name, w in weights.items()}
    return path, (stored, biases)


def expected(
    activations: str, x: NDArray[Any], z: NDArray[Any], stored: Any, biases: Any
) -> list[NDArray[Any]]:
    inputs = {"gate": -x, "up": -x, "down": np.abs(x)}
    of = {name: inputs.get(name, x).astype(np.float64) @ w.T for name, w in stored.items()}
    found = [np.maximum(of[name] + biases[f"{name}_bias"], 0) for name in "qkv"]
    gate = of["gate"]
    slope = 1 if activations == "int8" else 1.5957691216057308 * (1 + 0.044715 * gate**2)
    with np.errstate(over="ignore"):
        gate = gate / (1 + np.exp(-gate * slope))
    return [*found, gate * of["up"], of["down"] + z, of["head"]]


@pytest.mark.parametrize(("activations", "name", "group", "cols"), FORMS)
def test_blocks_have_the_numbers_and_the_bits_of_single_tokens(
    activations: str, name: str, group: int, cols: int, device: dict[str, Any], tmp_path: Path
) -> None:
    kind = Encoding(name, group)
    weights = {layer: normal(rows, cols, seed=layer) for layer, rows in ROWS.items()}
    check(tmp_path, activations, kind, weights, device)


@pytest.mark.parametrize("cols", [1120, 2560])
@pytest.mark.parametrize("factor", [-20, 3, 1e-5])
def test_blocks_of_weights_whose_runs_have_other_steps(
    cols: int, factor: float, device: dict[str, Any], tmp_path: Path
) -> None:
    """Sums are brought from one step to the next only where they fit in 32 bits."""
    weights = {layer: normal(rows, cols, seed=layer) for layer, rows in EVEN_ROWS.items()}
    for weight in weights.values():
        weight[:, 1024:2048] *= np.float32(factor)
    check(tmp_path, "int8", Encoding("matrix_q4_steps", 32), weights, device)


def check(
    folder: Path,
    activations: str,
    kind: Encoding,
    numbers: dict[str, NDArray[Any]],
    device: dict[str, Any],
) -> None:
    path, weights = written(folder, activations, kind, numbers)
    cols, rows = numbers["q"].shape[1], len(numbers["down"])
    instance = on_device(Program(path))
    assert {part.executor for part in instance.parts} == {"vulkan"}, instance.refusals
    # Whole numbers, which rounding leaves as they are.
    most = 127 if activations == "int8" else 32512
    codes = integers(MOST, cols, below=2 * most + 1, seed="x").astype(np.float32) - most
    codes[:, 7] = most
    x, z = codes / (128 if most == 127 else 32768), normal(MOST, rows, seed="z")
    forward = instance.method("forward")
    want = expected(activations, x, z, *weights)
    alone = [forward.run(x[i : i + 1], z[i : i + 1]) for i in range(20)]
    for tokens in (MOST, 64, 33, 20, 16, 9, 8, 3):
        for at, (got, right) in enumerate(
            zip(forward.run(x[:tokens], z[:tokens]), want, strict=True)
        ):
            np.testing.assert_allclose(
                got, right[:tokens], rtol=0, atol=2e-5 * np.abs(right).max(), err_msg=str(at)
            )
            if "cooperative matrices" in device["features"]:
                continue
            for i in range(min(tokens, len(alone))):
                np.testing.assert_array_equal(got[i], alone[i][at][0], err_msg=f"{tokens} {at}")


@pytest.mark.parametrize("window", [0, 70])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_attention_of_long_steps_is_the_same_wherever_they_begin(
    dtype: str, window: int, device: dict[str, Any], tmp_path: Path
) -> None:
    """A prompt's whole pages are read in steps of any number of pages."""
    kv_heads, rows, dim, first = 1, 300, 64, 50
    b = GraphBuilder("forward")
    size = Sym("S", 192)
    q = b.input("q", (size, 2, dim))
    kind = DType.f16 if dtype == "float16" else DType.f32
    k, v = (b.input(name, (kv_heads, rows, dim), kind) for name in "kv")
    where = [b.input(name, (size,), DType.i32) for name in ("sequence", "position")]
    b.output(b.node("attention", q, k, v, *where, scale=0.2, window=window, softcap=0.0), "y")
    instance = on_device(Program(write_program(tmp_path / "p.satchel", [b.finish()])))
    assert {part.executor for part in instance.parts} == {"vulkan"}, instance.refusals
    queries = normal(192, 2, dim)
    caches = [normal(kv_heads, rows, dim, seed=name).astype(dtype) for name in "kv"]

    def run(begin: int, end: int) -> NDArray[Any]:
        positions = np.arange(first + begin, first + end, dtype=np.int32)
        given = queries[begin:end], *caches, np.zeros(end - begin, np.int32), positions
        return instance.method("forward").run(*given)[0]

    whole, short = run(0, 192), np.concatenate([run(at, at + 48) for at in range(0, 192, 48)])
    np.testing.assert_allclose(whole, short, rtol=0, atol=1e-5)
    for begin, end in ((0, 64), (64, 192), (100, 170), (7, 190)):
        np.testing.assert_array_equal(run(begin, end), whole[begin:end])
