"""A program whose sizes depend on each other: symbols that others are joined to, and sizes that
only a run tells."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from satchel.encodings.encoding import Encoding
from satchel.graph.builder import GraphBuilder
from satchel.graph.ir import DType, Graph, Sym, Weight
from satchel.program.writer import ProgramWriter
from support.arrays import normal
from support.programs import encode_array

ENCODINGS = {"mix": Encoding("matrix_f32"), "round": Encoding("matrix_q8", 8)}
WEIGHTS = {name: normal(8, 8, seed=name) for name in ENCODINGS}
S, T, N = Sym("s", 9), Sym("t", 5), Sym("n", 12)


def _joined() -> Graph:
    """Rows by pairs and one behind the other: sizes that are products, sums and parts of others."""
    b = GraphBuilder("joined")
    first, second = b.input("first", (S, 8)), b.input("second", (T, 8))
    pairs = b.input("pairs", (S * T, 8))
    third = b.input("third", (S * T + S, 8))
    scores = b.matmul(first, b.transpose(second, perm=(1, 0)))
    b.output(b.softmax(scores, axis=-1), "scores")
    divided = b.node("reshape_as", pairs, scores, shape=(-1, -2, 8))
    b.output(b.reduce_sum(divided, axes=(1,), keepdims=0), "sums")
    behind = b.concat(first, second, axis=0)
    b.output(b.node("linear", behind, b.weight("mix", (8, 8)), activations="f32"), "behind")
    b.output(b.add(third, b.concat(pairs, first, axis=0)), "third_sum")
    picture = b.reshape(b.concat(behind, pairs, axis=0), shape=(0, 8, 1, 1))
    picture = b.transpose(picture, perm=(2, 0, 1, 3))
    b.output(b.max_pool2d(picture, kernel=(3, 2), stride=(2, 2)), "pooled")
    return b.finish()


def _chosen() -> Graph:
    """Boxes that a mask and their overlap choose, and what is computed of as many as there are."""
    b = GraphBuilder("chosen")
    boxes, mask = b.input("boxes", (N, 4)), b.input("mask", (N,), DType.boolean)
    features = b.input("features", (N, 8))
    kept = b.node("nonzero", b.node("nms", boxes, threshold=0.5), size="kept")
    b.output(kept, "places")
    near = b.node("take", features, kept, axis=0)
    asked = b.node("take", features, b.node("nonzero", mask, size="asked"), axis=0)
    both = b.concat(near, asked, axis=0)
    rounded = b.node("linear", both, b.weight("round", (8, 8)), activations="int8")
    b.output(b.reduce_sum(rounded, axes=(0,), keepdims=1), "sum")
    pairs = b.matmul(near, b.transpose(asked, perm=(1, 0)))
    b.output(pairs, "pairs")
    row = b.node("take", both, b.constant("one", np.zeros(1, np.int32)), axis=1)
    zero = b.constant("zero", np.zeros((1, 1), np.float32))
    positive = b.node("compare", zero, row, kind="lt")
    last = b.node("nonzero", b.reshape(positive, shape=(-1,)), size="positive")
    b.output(b.node("take", both, last, axis=0), "positive_rows")
    return b.finish()


def write_sized_program(path: Path) -> Path:
    def encode(weight: Weight, encoding: Encoding) -> Iterator[bytes]:
        yield from encode_array(WEIGHTS[weight.name], encoding)

    metadata = {"kind": "test", "name": "sized"}
    ProgramWriter([_joined(), _chosen()], ENCODINGS, b"").write(path, encode, lambda: metadata)
    return path
