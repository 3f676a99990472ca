"""A program of more than 4 GB. Its weights are a hole in the file, so it takes little disk."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest

from satchel.encodings.encoding import Encoding
from satchel.runtime.program import load
from support import program_file as fm
from support.arrays import normal
from support.program_file import ARENA, INPUT, WEIGHT, Method, Model, Node, Value, Weight
from support.programs import encode_array

ROWS, COLS = 17_000_000, 64  # of f32: 4.35 GB


def _require_sparse_files(folder: Path) -> None:
    path = folder / "hole"
    with path.open("wb") as file:
        file.truncate(64 << 20)
    if path.stat().st_blocks * 512 > 1 << 20:
        pytest.skip("this file system has no sparse files")


def _write(path: Path, model: Model, pieces: dict[int, bytes], weights_size: int) -> None:
    """The model's file with a weights section that is a hole but for some pieces."""
    parts = {
        "tokenizer": b"",
        "methods": fm.write_methods(model),
        "weight_index": fm.write_index(model),
        "metadata": b"{}",
        "weights": b"",
    }
    at = 64 + 64 * len(parts)
    records = []
    with path.open("wb") as file:
        for kind, data in parts.items():
            at = fm.align(at, 4096 if kind == "weights" else 256)
            size = weights_size if kind == "weights" else len(data)
            records.append(fm.Record(kind, at, size, hashlib.sha256(data).digest()))
            os.pwrite(file.fileno(), data, at)
            at += size
        for offset, piece in pieces.items():
            os.pwrite(file.fileno(), piece, records[-1].offset + offset)
        file.truncate(at)
        os.pwrite(file.fileno(), fm.write_header(records, at), 0)


def test_weights_past_four_gigabytes(tmp_path: Path) -> None:
    _require_sparse_files(tmp_path)
    last = normal(32, 16)
    last_tile = normal(16, COLS, seed="tile")
    (last_bytes,) = encode_array(last, Encoding("matrix_f32"))
    (tile_bytes,) = encode_array(last_tile, Encoding("matrix_f32"))
    size = ROWS * COLS * 4
    weights = [
        Weight("table", 16, [ROWS, COLS], 0, 0, size, 0, 0, bytes(32)),
        Weight("last", 16, [32, 16], 0, size, len(last_bytes), 0, 0, bytes(32)),
    ]
    values = [
        Value("ids", INPUT, 0, 2, [2]),
        Value("x", INPUT, 1, 0, [1, 16]),
        Value("table", WEIGHT, 0, 0, [ROWS, COLS]),
        Value("last", WEIGHT, 1, 0, [32, 16]),
        Value("rows", ARENA, 0, 0, [2, COLS]),
        Value("y", ARENA, 512, 0, [1, 32]),
    ]
    nodes = [Node("embedding", [0, 2], [4], []), Node("linear", [1, 3], [5], [])]
    method = Method("forward", 640, [], values, [0, 1], [4, 5], nodes)
    path = tmp_path / "large.satchel"
    pieces = {size - len(tile_bytes): tile_bytes, size: last_bytes}
    _write(path, Model(methods=[method], weights=weights), pieces, size + len(last_bytes))
    assert path.stat().st_size > 1 << 32
    assert path.stat().st_blocks * 512 < 1 << 20

    program = load(path)
    assert program.weights[-1]["offset"] > 1 << 32
    x = normal(1, 16, seed="x")
    rows, y = program.method("forward").run([0, ROWS - 1], x)
    np.testing.assert_array_equal(rows, [np.zeros(COLS), last_tile[15]])
    np.testing.assert_allclose(y, x @ last.T, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(program.weight("last"), last)
