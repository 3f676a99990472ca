"""Every op that the NPU claims, on Qualcomm's emulator against the reference."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnxruntime_qnn", reason="pip install 'satchel[qnn]'")

from module_rows import module_rows
from npu_rows import ROWS, NpuRow, attention_row

from satchel.backends.qnn.annotate import RangeWatcher, annotate, constant_encoding
from satchel.backends.qnn.child import Child
from satchel.backends.qnn.chips import CHIPS
from satchel.backends.qnn.lower import PLAIN_OPS
from satchel.backends.qnn.modules import lower as module_lower
from satchel.backends.qnn.modules.widths import exact_weights
from satchel.backends.qnn.modules.writer import ModuleWriter
from satchel.backends.qnn.onnx_model import OnnxWriter, WeightFile
from satchel.backends.qnn.reference_run import ReferenceGraph, weight_reader
from satchel.graph.ir import Graph, Weight
from satchel.graph.reference import ReferenceInterpreter, WeightReader
from satchel.quantize.static import ActivationEncoding

TARGET = "qnn:SM8750"


@pytest.fixture(scope="module")
def child() -> Iterator[Child]:
    with Child() as started:
        yield started


def test_every_op_has_a_row() -> None:
    assert {row.op for row in ROWS} == PLAIN_OPS


@pytest.mark.parametrize("row", ROWS, ids=[row.id for row in ROWS])
def test_the_chip_computes_what_the_reference_does(
    row: NpuRow, child: Child, tmp_path: Path
) -> None:
    _check(row, child, tmp_path, TARGET)


@pytest.mark.parametrize("version", sorted({chip.hexagon for chip in CHIPS}))
@pytest.mark.parametrize("sizes", [(4, 2, 16, 48, 1), (9, 3, 64, 40, 3)], ids=["one", "three"])
def test_attention_on_every_version(
    version: int, sizes: tuple[int, int, int, int, int], child: Child, tmp_path: Path
) -> None:
    """v69 computes other, equally valid ways to write it wrong, and says nothing."""
    _check(attention_row(*sizes), child, tmp_path, f"qnn:v{version}")


MODULE_ROWS = [row for bits in (8, 16) for row in module_rows(bits)]


def test_every_op_of_modules_has_a_row() -> None:
    assert {row.op for row in MODULE_ROWS} == module_lower.PLAIN_OPS


@pytest.mark.parametrize("row", MODULE_ROWS, ids=[row.id for row in MODULE_ROWS])
def test_the_chip_computes_what_the_reference_does_in_modules(
    row: NpuRow, child: Child, tmp_path: Path
) -> None:
    _check(row, child, tmp_path, TARGET, ModuleWriter)


def _module_reader(
    row: NpuRow, graph: Graph, encodings: dict[str, ActivationEncoding]
) -> WeightReader:
    exact = exact_weights(graph, encodings)

    def read(weight: Weight) -> np.ndarray:
        if weight.name in row.matrices:
            return row.matrix(weight.name).numbers()
        array = row.array(weight.name)
        if weight.name in exact:
            return array
        return constant_encoding(array, row.bits).round_trip(array)

    return read


def _check(
    row: NpuRow,
    child: Child,
    tmp_path: Path,
    target: str,
    writer: type[OnnxWriter] = OnnxWriter,
) -> None:
    graph = row.graph()
    watcher = RangeWatcher({})
    inputs = row.given
    for name, array in inputs.items():
        watcher.see(name, array)
    read = weight_reader(row, row.bits)
    ReferenceInterpreter(read).run(graph, inputs, after_node=watcher.after_node)
    encodings = annotate(graph, watcher.ranges, row.bits)
    codes = {name: encodings[name].quantize(array) for name, array in inputs.items()}
    rounded = _module_reader(row, graph, encodings) if writer is ModuleWriter else None
    expected = ReferenceGraph(graph, encodings, row, row.bits, rounded).run(codes)["out"]

    weights = WeightFile(tmp_path / "weights.bin")
    writer(graph, encodings, row, weights, row.bits).write(tmp_path / "model.onnx")
    weights.close()
    child.compile([(row.id, tmp_path / "model.onnx", None)], target)
    got = child.run(row.id, codes)["out"]

    assert got.dtype == expected.dtype and got.shape == expected.shape
    span = encodings["out"].highest - encodings["out"].lowest
    steps = np.abs(got.astype(int) - expected.astype(int)).max()
    assert steps <= max(1, row.tolerance * span), f"{steps} steps of {span}"
