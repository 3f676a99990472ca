"""Every op that the NPU claims, on Qualcomm's emulator against the reference."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnxruntime_qnn", reason="pip install 'satchel[qnn]'")

from module_rows import module_rows
from npu_rows import ROWS, NpuRow, attention_row

from satchel.backends.qnn.annotate import annotate
from satchel.backends.qnn.child import Child
from satchel.backends.qnn.chips import CHIPS
from satchel.backends.qnn.onnx_writer import ExternalData, OnnxWriter
from satchel.backends.qnn.ops import PLAIN_OPS
from satchel.backends.qnn.reference_run import ReferenceGraph
from satchel.graph.ir import Node, Weight
from satchel.graph.reference import ReferenceInterpreter
from satchel.quantize.static import ActivationEncoding

TARGET = "qnn:SM8750"


@pytest.fixture(scope="module")
def child() -> Iterator[Child]:
    with Child() as started:
        yield started


ALL = [*ROWS, *(row for bits in (8, 16) for row in module_rows(bits))]


def test_every_op_has_a_row() -> None:
    assert {row.op for row in ALL} == PLAIN_OPS


@pytest.mark.parametrize("row", ALL, ids=[row.id for row in ALL])
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


def _check(row: NpuRow, child: Child, tmp_path: Path, target: str) -> None:
    got, expected, encoding = run_row(row, child, tmp_path, target)
    assert got.dtype == expected.dtype and got.shape == expected.shape
    span = encoding.highest - encoding.lowest
    steps = np.abs(got.astype(int) - expected.astype(int)).max()
    assert steps <= max(1, row.tolerance * span), f"{steps} steps of {span}"


def run_row(
    row: NpuRow, child: Child, tmp_path: Path, target: str
) -> tuple[np.ndarray, np.ndarray, ActivationEncoding]:
    """What the emulator gives, what the reference gives, and how both are encoded."""
    graph, inputs = row.graph(), row.given
    seen = dict(inputs)

    def keep(node: Node, results: list[np.ndarray]) -> list[np.ndarray]:
        seen[node.outputs[0].name] = results[0]
        return results

    def exact(weight: Weight) -> np.ndarray:
        known = row.matrices.get(weight.name)
        return known.numbers() if known else row.array(weight.name)

    ReferenceInterpreter(exact).run(graph, inputs, after_node=keep)
    ranges = {n: (min(float(a.min()), 0.0), max(float(a.max()), 0.0)) for n, a in seen.items()}
    encodings = annotate(graph, ranges, row.bits)
    codes = {name: encodings[name].quantize(array) for name, array in inputs.items()}
    expected = ReferenceGraph(graph, encodings, row, row.bits).run(codes)["out"]

    weights = ExternalData(tmp_path / "weights.bin")
    OnnxWriter(graph, encodings, row, weights, row.bits).write(tmp_path / "model.onnx")
    weights.close()
    child.compile([(row.id, tmp_path / "model.onnx", None)], target)
    return child.run(row.id, codes)["out"], expected, encodings["out"]
