"""A small program with everything in it: all sections, two methods, states, every encoding."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.encodings.encoding import Encoding
from satchel.graph.builder import GraphBuilder
from satchel.graph.ir import DType, Graph, Sym, Value, Weight
from satchel.program.writer import ProgramWriter
from support.arrays import normal
from support.programs import encode_array

VOCABULARY, WIDTH, HEADS, KV_HEADS, DIM, CONTEXT, TOKENS = 20, 32, 4, 2, 8, 12, 5
KV_WIDTH = KV_HEADS * DIM

ENCODINGS = {
    "embed": Encoding("matrix_q8", 32),
    "norm": Encoding("f32"),
    "q": Encoding("matrix_q4", 16),
    "k": Encoding("matrix_lpbq4", 16),
    "v": Encoding("matrix_q8", 16),
    "out": Encoding("matrix_f16"),
    "gate": Encoding("matrix_f32"),
    "bias": Encoding("f32"),
    "low": Encoding("matrix_q4_min", 16),
    "mid": Encoding("matrix_q4_offset", 32),
    "high": Encoding("matrix_q8_offset", 16),
    "fine": Encoding("matrix_q4_steps", 8),
    "five": Encoding("matrix_q5", 32),
    "least": Encoding("matrix_q5_min", 32),
    "low_k": Encoding("matrix_q4_k", 32),
    "mid_k": Encoding("matrix_q5_k", 32),
    "high_k": Encoding("matrix_q6_k", 16),
    "whole": Encoding("matrix_i8"),
    "kernel": Encoding("matrix_f32"),
}
SHAPES: dict[str, tuple[int, ...]] = {
    "embed": (VOCABULARY, WIDTH),
    "norm": (WIDTH,),
    "q": (WIDTH, WIDTH),
    "k": (KV_WIDTH, WIDTH),
    "v": (KV_WIDTH, WIDTH),
    "out": (WIDTH, WIDTH),
    "gate": (WIDTH, WIDTH),
    "bias": (WIDTH,),
    "low": (WIDTH, WIDTH),
    "mid": (WIDTH, WIDTH),
    "high": (WIDTH, WIDTH),
    "fine": (WIDTH, WIDTH),
    "five": (WIDTH, WIDTH),
    "least": (WIDTH, WIDTH),
    "low_k": (WIDTH, 8 * WIDTH),
    "mid_k": (WIDTH, 8 * WIDTH),
    "high_k": (WIDTH, 8 * WIDTH),
    "whole": (6, 27),
    "kernel": (3, 24),
}
WEIGHTS: dict[str, NDArray[np.float32]] = {
    name: normal(*shape, seed=name, scale=0.3) for name, shape in SHAPES.items()
}
WEIGHTS["whole"] = np.rint(WEIGHTS["whole"] * 99)
METADATA = {"kind": "test", "name": "small"}
TOKENIZER = b'{"tokens": ["a", "b"]}'


def _graph(name: str, tokens: int | Sym) -> Graph:
    b = GraphBuilder(name)
    ids = b.input("tokens", (tokens,), DType.i32)
    position = b.input("position", (tokens,), DType.i32)
    rows = b.input("rows", (1,), DType.i32)
    at = (b.input("sequence", (tokens,), DType.i32), position)

    def weight(name: str) -> Value:
        dtype = DType.i8 if ENCODINGS[name].kind == "matrix_i8" else DType.f32
        return b.weight(name, SHAPES[name], dtype=dtype)

    def linear(x: Value, name: str, bias: Value | None = None) -> Value:
        kind = (
            ("int16" if name in ("k", "v", "mid", "least", "mid_k") else "int8")
            if ENCODINGS[name].is_quantized
            else "f32"
        )
        value: Value = b.node("linear", x, weight(name), bias, activations=kind)
        return value

    x = b.embedding(ids, weight("embed"))
    h = b.rms_norm(x, weight("norm"), eps=1e-5)
    frequencies = b.constant("frequencies", np.array([1.0, 0.5, 0.25, 0.125], np.float32))
    table = b.rope_table(position, frequencies)
    q = b.rope(b.reshape(linear(h, "q"), shape=(0, HEADS, DIM)), table)
    k = b.rope(b.reshape(linear(h, "k"), shape=(0, KV_HEADS, DIM)), table)
    v = b.reshape(linear(h, "v"), shape=(0, KV_HEADS, DIM))
    cache = (KV_HEADS, CONTEXT, DIM)
    keys = b.cache_write(b.cache("keys", cache, DType.f16), k, *at)
    values = b.cache_write(b.cache("values", cache, DType.f16), v, *at)
    a = b.attention(q, keys, values, *at, scale=0.35)
    bytes_ = (KV_HEADS, CONTEXT, DIM + 8)
    keys8 = b.cache_write(b.state("keys8", bytes_, DType.u8), k, *at)
    values8 = b.cache_write(b.state("values8", bytes_, DType.u8), v, *at)
    a = b.add(a, b.attention(q, keys8, values8, *at, scale=0.35))
    x = b.add(x, linear(b.reshape(a, shape=(0, WIDTH)), "out", weight("bias")))
    x = b.add(x, b.silu_mul(linear(h, "gate"), linear(x, "low", weight("bias"))))
    x = b.add(linear(x, "high"), b.add(linear(x, "mid"), linear(x, "fine")))
    x = b.add(linear(x, "five"), linear(x, "least"))
    wide = b.concat(*[x] * 8, axis=1)
    x = b.add(linear(wide, "low_k"), b.add(linear(wide, "mid_k"), linear(wide, "high_k")))
    last = b.take_rows(x, rows)
    b.output(linear(last, "embed"), "logits")
    half = b.constant("half", np.arange(WIDTH, dtype=np.float16) / 8)
    shifted = b.add(last, b.cast(half, dtype="f32"))
    parts = b.concat(
        b.slice(shifted, axis=1, start=0, stop=8),
        b.transpose(b.reshape(b.softmax(shifted, axis=-1), shape=(1, WIDTH)), perm=(0, 1)),
        axis=1,
    )
    b.output(b.affine(b.reduce_mean(parts, axes=(1,), keepdims=1), scale=2.0), "mean")
    image = b.constant("image", np.arange(75, dtype=np.uint8).reshape(1, 5, 5, 3))
    scale = b.constant("scale", np.full(6, 0.02, np.float32))
    seen = b.qconv2d(image, weight("whole"), scale, kernel=(3, 3), padding=(1, 1, 1, 1), x_zero=7)
    pooled = b.max_pool2d(seen, kernel=(2, 2), ceil_mode=1)
    b.output(b.conv2d(pooled, weight("kernel"), kernel=(2, 2), activation="relu"), "picture")
    counts = b.constant("counts", np.arange(TOKENS, dtype=np.int32))
    b.output(b.take_rows(counts, rows), "count")
    return b.finish()


def _tree() -> Graph:
    """Tokens that are a tree over the caches of the others, and rows of a cache that move."""
    b = GraphBuilder("tree")
    tokens = Sym("S", TOKENS)
    q = b.input("q", (tokens, HEADS, DIM))
    at = [b.input(name, (tokens,), DType.i32) for name in ("sequence", "position", "parents")]
    keys = b.cache("keys", (KV_HEADS, CONTEXT, DIM), DType.f16)
    start = [b.input(name, (1,), DType.i32) for name in ("of", "start")]
    moved = b.cache_move(keys, b.input("rows", (2,), DType.i32), *start)
    values = b.cache("values", (KV_HEADS, CONTEXT, DIM), DType.f16)
    b.output(b.attention(q, moved, values, *at, scale=0.35), "out")
    frequencies = b.constant("frequencies", np.array([1.0, 0.5, 0.25, 0.125], np.float32))
    table = b.rope_table(at[1], frequencies)
    b.output(b.neg(b.rope(q, table)), "turned")
    return b.finish()


def graphs() -> list[Graph]:
    return [_graph("forward", Sym("S", TOKENS)), _graph("one", 1), _tree()]


def write_small_program(path: Path) -> Path:
    def encode(weight: Weight, encoding: Encoding) -> Iterator[bytes]:
        yield from encode_array(WEIGHTS[weight.name], encoding)

    ProgramWriter(graphs(), ENCODINGS, TOKENIZER).write(path, encode, lambda: METADATA)
    return path


def small_inputs(tokens: int = 3, start: int = 0, row: int = 0) -> dict[str, NDArray[Any]]:
    return {
        "tokens": np.arange(1, tokens + 1, dtype=np.int32),
        "position": np.arange(start, start + tokens, dtype=np.int32),
        "rows": np.array([row], np.int32),
        "sequence": np.zeros(tokens, np.int32),
    }
