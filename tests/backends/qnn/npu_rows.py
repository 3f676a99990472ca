"""Every op that the NPU takes, in the shapes that language models have it: small graphs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.backends.qnn.weights import StoredMatrix
from satchel.encodings.packing import quantize_groups
from satchel.graph.builder import GraphBuilder
from satchel.graph.ir import Graph, Value
from satchel.quantize.blockwise import quantize_blocks
from support.arrays import normal

Array = NDArray[Any]
Build = Callable[[GraphBuilder, list[Value]], Value]


@dataclass
class NpuRow:
    """An op with its inputs; ``build`` makes its node of their values."""

    op: str
    name: str
    inputs: list[Array]
    build: Build
    bits: int = 16
    # Of the range that the output's codes span: what the chip may differ from exact rounding.
    tolerance: float = 2e-4
    matrices: dict[str, StoredMatrix] = field(default_factory=dict)
    vectors: dict[str, Array] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)  # of the inputs; one that tells a cache counts

    def __post_init__(self) -> None:
        self.names = self.names or [f"x{i}" for i in range(len(self.inputs))]

    @property
    def given(self) -> dict[str, Array]:
        return dict(zip(self.names, self.inputs, strict=True))

    @property
    def id(self) -> str:
        return f"{self.op}-{self.name}-{self.bits}"

    def graph(self) -> Graph:
        b = GraphBuilder("forward")
        values = [b.input(name, x.shape) for name, x in self.given.items()]
        b.output(self.build(b, values), "out")
        return b.finish()

    def matrix(self, name: str) -> StoredMatrix:
        return self.matrices[name]

    def array(self, name: str) -> Array:
        return self.vectors[name]


def blocks(name: str, rows: int, cols: int, block: int) -> StoredMatrix:
    codes, scales, factors = quantize_blocks(normal(rows, cols, seed=name), block)
    return StoredMatrix(codes, scales, factors, 4)


def per_row(name: str, rows: int, cols: int) -> StoredMatrix:
    codes, scales = quantize_groups(normal(rows, cols, seed=name), 8, cols)
    return StoredMatrix(codes, scales.astype(np.float32), None, 8)


def _linear(b: GraphBuilder, values: list[Value], rows: int) -> Value:
    cols = values[0].shape[-1]
    assert isinstance(cols, int)
    return b.node("linear", values[0], b.weight("w", (rows, cols)))


def _linear_rows() -> list[NpuRow]:
    rows = []
    shapes = ((1, 48, 64, 32), (5, 80, 96, 16), (32, 64, 128, 64), (3, 48, 256, 128))
    for tokens, out, inner, block in shapes:
        rows.append(
            NpuRow(
                "linear",
                f"blocks{block}_{tokens}x{inner}x{out}",
                [normal(tokens, inner)],
                lambda b, v, out=out: _linear(b, v, out),
                matrices={"w": blocks("w", out, inner, block)},
            )
        )
    for bits, tolerance in ((16, 2e-4), (8, 5e-3)):
        rows.append(
            NpuRow(
                "linear",
                "rows",
                [normal(7, 64)],
                lambda b, v: _linear(b, v, 40),
                bits,
                tolerance,
                matrices={"w": per_row("w", 40, 64)},
            )
        )
    return rows


def _norm(op: str) -> NpuRow:
    def build(b: GraphBuilder, v: list[Value]) -> Value:
        return b.node(op, v[0], b.weight("gain", (64,), "vector"), eps=1e-5)

    gains = {"gain": 1 + 0.2 * normal(64)}
    return NpuRow(op, "rank2", [normal(5, 64)], build, vectors=gains, tolerance=5e-4)


def _layer_norm() -> NpuRow:
    def build(b: GraphBuilder, v: list[Value]) -> Value:
        return b.node("layer_norm", v[0], b.constant("ones", np.ones(64, np.float32)), eps=1e-5)

    return NpuRow("layer_norm", "ones", [3 * normal(5, 64)], build, tolerance=5e-4)


def _attention_scores() -> NpuRow:
    """16-bit queries with a cache of 8 bits: of two values, the chip rounds products coarsely."""
    inputs = [normal(3, 6, 16), normal(3, 16, 40, seed=1)]
    row = _plain("matmul", "cache", *inputs, tolerance=4e-3)
    row.names = ["x0", "cache.0.k"]
    return row


def _heads_norm() -> NpuRow:
    """Queries normed head by head."""

    def build(b: GraphBuilder, v: list[Value]) -> Value:
        return b.node("rms_norm", v[0], b.weight("gain", (32,), "vector"), eps=1e-6)

    gains = {"gain": 1 + 0.2 * normal(32)}
    return NpuRow("rms_norm", "heads", [normal(3, 4, 32)], build, vectors=gains, tolerance=5e-4)


def _plain(op: str, name: str, *inputs: Array, bits: int = 16, **rest: Any) -> NpuRow:
    tolerance = rest.pop("tolerance", 2e-4 if bits == 16 else 8e-3)
    return NpuRow(op, name, list(inputs), lambda b, v: b.node(op, *v, **rest), bits, tolerance)


def _with_bias() -> NpuRow:
    def build(b: GraphBuilder, v: list[Value]) -> Value:
        return b.node("add", v[0], b.weight("bias", (48,), "vector"))

    return NpuRow("add", "bias", [normal(5, 48)], build, vectors={"bias": normal(48)})


ROWS: list[NpuRow] = [
    *_linear_rows(),
    _norm("rms_norm"),
    _layer_norm(),
    _attention_scores(),
    _heads_norm(),
    _with_bias(),
]
_HEADS = normal(3, 6, 16), normal(3, 16, 40, seed=1)
for _bits in (16, 8):
    ROWS += [
        _plain("add", "same", normal(5, 64), normal(5, 64, seed=1), bits=_bits),
        _plain("add", "mask", normal(2, 6, 40), normal(6, 40, seed=1), bits=_bits),
        _plain("sub", "same", normal(3, 2, 16), normal(3, 2, 16, seed=1), bits=_bits),
        _plain("mul", "heads", normal(3, 4, 16), normal(3, 1, 16, seed=1), bits=_bits),
        _plain("affine", "scale", normal(4, 32), bits=_bits, scale=0.125),
        _plain("affine", "shift", normal(4, 32), bits=_bits, shift=-1.5),
        _plain(
            "sigmoid",
            "rank2",
            3 * normal(4, 64),
            bits=_bits,
            tolerance=1e-3 if _bits == 16 else 8e-3,
        ),
        _plain(
            "tanh", "rank2", 2 * normal(4, 64), bits=_bits, tolerance=1e-3 if _bits == 16 else 8e-3
        ),
        _plain(
            "gelu", "rank2", 2 * normal(4, 64), bits=_bits, tolerance=1e-3 if _bits == 16 else 8e-3
        ),
        _plain("relu", "rank2", normal(4, 64), bits=_bits),
        _plain(
            "softmax",
            "scores",
            4 * normal(2, 6, 40),
            bits=_bits,
            axis=-1,
            tolerance=1e-3 if _bits == 16 else 8e-3,
        ),
        _plain("matmul", "heads", *_HEADS, bits=_bits, tolerance=8e-3),
        _plain("reshape", "split", normal(5, 64), bits=_bits, shape=(5, 4, 16)),
        _plain("transpose", "heads", normal(5, 4, 16), bits=_bits, perm=(1, 2, 0)),
        _plain("slice", "half", normal(5, 4, 16), bits=_bits, axis=2, start=8, stop=16),
        _plain("concat", "halves", normal(5, 4, 8), normal(5, 4, 8, seed=1), bits=_bits, axis=2),
    ]


def attention_row(heads: int, kv_heads: int, dim: int, context: int, tokens: int) -> NpuRow:
    """A layer's attention as it is lowered, cache and mask included."""

    def build(b: GraphBuilder, v: list[Value]) -> Value:
        q, k, value, old_keys, old_values, mask = v
        slots = context + tokens
        q = b.transpose(b.affine(q, scale=dim**-0.5), perm=(1, 0, 2))
        q = b.reshape(q, shape=(kv_heads, heads // kv_heads, tokens, dim))
        keys = b.concat(old_keys, b.affine(b.transpose(k, perm=(1, 2, 0)), scale=1.0), axis=2)
        transposed = b.affine(b.transpose(value, perm=(1, 0, 2)), scale=1.0)
        values = b.concat(old_values, transposed, axis=1)
        scores = b.matmul(q, b.reshape(keys, shape=(kv_heads, 1, dim, slots)))
        weights = b.softmax(b.add(scores, mask), axis=-1)
        out = b.matmul(weights, b.reshape(values, shape=(kv_heads, 1, slots, dim)))
        return b.node("transpose", b.reshape(out, shape=(heads, tokens, dim)), perm=(1, 0, 2))

    mask = np.where(normal(tokens, context + tokens) > 0.3, 0.0, -90.0).astype(np.float32)
    mask[:, -1] = 0
    inputs = [
        normal(tokens, heads, dim),
        normal(tokens, kv_heads, dim, seed=1),
        normal(tokens, kv_heads, dim, seed=2),
        normal(kv_heads, dim, context, seed=3),
        normal(kv_heads, context, dim, seed=4),
        mask,
    ]
    row = NpuRow("attention", f"{heads}x{kv_heads}x{dim}_{tokens}", inputs, build, tolerance=0.01)
    row.names = ["q", "k", "v", "cache.0.k", "cache.0.v", "mask.0"]
    return row
