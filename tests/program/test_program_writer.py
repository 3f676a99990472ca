"""Writing programs: what the writer refuses, and that a failure leaves nothing behind."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from satchel.encodings.encoding import Encoding
from satchel.errors import GraphError, OutputExistsError
from satchel.graph.builder import GraphBuilder
from satchel.graph.ir import DType, Graph, Sym, TensorType, Value, Weight
from satchel.program.writer import ProgramWriter
from satchel.runtime.program import load
from support.programs import write_program
from support.small_program import ENCODINGS, METADATA, TOKENIZER, graphs, write_small_program


def _small(name: str = "forward") -> GraphBuilder:
    b = GraphBuilder(name)
    b.output(b.neg(b.input("x", (2,))), "y")
    return b


def test_the_size_is_known_before_anything_is_written(tmp_path: Path) -> None:
    path = write_small_program(tmp_path / "a.satchel")
    metadata_size = len(load(path).section("metadata"))
    writer = ProgramWriter(graphs(), ENCODINGS, TOKENIZER)
    assert writer.file_size(metadata_size) == path.stat().st_size


def test_the_same_program_is_the_same_bytes(tmp_path: Path) -> None:
    first, second = (write_small_program(tmp_path / name) for name in ("a", "b"))
    assert first.read_bytes() == second.read_bytes()


def test_an_interrupted_write_leaves_nothing(tmp_path: Path) -> None:
    def encode(weight: Weight, encoding: Encoding) -> Iterator[bytes]:
        yield bytes(64)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ProgramWriter(graphs(), ENCODINGS).write(tmp_path / "a", encode, lambda: METADATA)
    assert os.listdir(tmp_path) == []


def test_an_existing_file_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.satchel"
    path.write_text("mine")
    with pytest.raises(OutputExistsError):
        write_small_program(path)
    assert path.read_text() == "mine"


def test_weights_are_stored_once_for_all_methods(tmp_path: Path) -> None:
    program = load(write_small_program(tmp_path / "a.satchel"))
    names = [w["name"] for w in program.weights]
    assert len(names) == len(set(names)) and len(program.methods) == 3


# --- what a program cannot say ---


def _write(folder: Path, *made: Graph) -> None:
    write_program(folder / "refused.satchel", made)


def test_names_that_the_loader_would_refuse(tmp_path: Path) -> None:
    for name in ("tab\there", "half \ud800 pair", "long" * 20_000):
        with pytest.raises(GraphError):
            _write(tmp_path, _small(name).finish())
    assert os.listdir(tmp_path) == []


def test_two_inputs_or_outputs_of_one_name(tmp_path: Path) -> None:
    b = _small()
    b.output(b.abs(b.input("x", (2,))), "z")
    with pytest.raises(GraphError, match="have one name"):
        _write(tmp_path, b.graph)
    b = _small()
    b.output(b.abs(b.graph.inputs[0]), "y")
    with pytest.raises(GraphError, match="have one name"):
        _write(tmp_path, b.graph)


def test_one_symbol_with_two_bounds(tmp_path: Path) -> None:
    b = GraphBuilder("forward")
    for name, most in (("x", 2), ("y", 3)):
        b.output(b.neg(b.input(name, (Sym("S", most),))), "minus " + name)
    with pytest.raises(GraphError, match="S has two maxima"):
        _write(tmp_path, b.graph)


def test_outputs_that_no_node_makes(tmp_path: Path) -> None:
    b = _small()
    b.output(b.graph.inputs[0], "same")
    with pytest.raises(GraphError, match="is never made"):
        _write(tmp_path, b.graph)


def test_attributes_that_are_not_finite(tmp_path: Path) -> None:
    b = _small()
    b.output(b.affine(b.graph.inputs[0], scale=float("inf")), "z")
    with pytest.raises(GraphError, match="inf"):
        _write(tmp_path, b.graph)


def test_one_name_for_two_weights(tmp_path: Path) -> None:
    first, second = _small("a"), _small("b")
    for b, number in ((first, 1.0), (second, 2.0)):
        value = Value("c", TensorType((2,)), constant=np.full(2, number, np.float32))
        b.output(b.add(b.graph.inputs[0], value), "z")
    with pytest.raises(GraphError, match="two different weights named c"):
        _write(tmp_path, first.finish(), second.finish())


def test_a_state_of_two_types(tmp_path: Path) -> None:
    made = []
    for name, dtype in (("a", DType.f16), ("b", DType.f32)):
        b = GraphBuilder(name)
        x, start = b.input("x", (1, 1, 4)), b.input("at", (1,), DType.i32)
        keys = b.cache_write(b.state("keys", (1, 8, 4), dtype), x, start, start)
        b.output(b.attention(x, keys, keys, start, start, scale=1.0), "y")
        made.append(b.finish())
    with pytest.raises(GraphError, match="keys has two types"):
        _write(tmp_path, *made)


def test_a_group_too_large_for_32_bit_sums(tmp_path: Path) -> None:
    b = GraphBuilder("forward")
    x = b.input("x", (1, 131072))
    b.output(b.node("linear", x, b.weight("w", (1, 131072)), activations="int8"), "y")
    with pytest.raises(GraphError, match="at most 65536 columns"):
        ProgramWriter([b.finish()], {"w": Encoding("matrix_q8", 131072)})
