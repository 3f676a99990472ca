"""Graphs of 16-bit floats on the NPU: every op, language models and modules."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("onnxruntime_qnn", reason="pip install 'satchel[qnn]'")

from module_rows import module_rows
from npu_rows import ROWS, NpuRow, attention_row
from test_qnn_ops import run_row

import satchel
from satchel.backends.qnn.child import Child
from satchel.backends.qnn.halves import FLOATS, HALVES, check_range
from satchel.backends.qnn.ops import PLAIN_OPS
from satchel.backends.qnn.payload import read_manifest
from satchel.backends.qnn.weights import StoredMatrix, in_floats
from satchel.errors import ConfigError, RecipeError
from satchel.llm.session import Session
from satchel.runtime.program import Program
from support.arrays import integers
from support.tiny_models import logits_of, tiny_model, write_checkpoint

PROMPT = integers(11, below=250).tolist()
OPTIONS: dict[str, Any] = {"target": "qnn:SM8750", "recipe": "fp16", "context": 32}


def _floats(row: NpuRow) -> NpuRow:
    matrices = {name: in_floats(one.numbers()) for name, one in row.matrices.items()}
    return replace(row, bits=FLOATS, matrices=matrices)


def _cuts_off(row: NpuRow) -> bool:
    """Whether codes end where a layer's sums do; in floats that is an op of its own."""
    return any(node.attrs.get("activation", "none") != "none" for node in row.graph().nodes)


ROWS_IN_FLOATS = [
    _floats(r) for r in [*ROWS, *module_rows(16)] if r.bits == 16 and not _cuts_off(r)
]


@pytest.fixture(scope="module")
def child() -> Iterator[Child]:
    with Child() as started:
        yield started


def _cases() -> Iterator[Any]:
    """Of each op one row; -m all_rows runs the others."""
    seen: set[str] = set()
    for row in ROWS_IN_FLOATS:
        marks = [pytest.mark.all_rows] if row.op in seen else []
        seen.add(row.op)
        yield pytest.param(row, id=row.id, marks=marks)


def test_every_op_has_a_row() -> None:
    assert {row.op for row in ROWS_IN_FLOATS} == PLAIN_OPS


@pytest.mark.parametrize("row", _cases())
def test_every_op_in_floats(row: NpuRow, child: Child, tmp_path: Path) -> None:
    got, expected, _ = run_row(row, child, tmp_path, "qnn:SM8750")
    assert got.dtype == expected.dtype == np.float16
    most = np.abs(expected.astype(np.float32)).max()
    off = np.abs(got.astype(np.float32) - expected.astype(np.float32)).max()
    assert off <= 4e-3 * max(most, 1.0)


@pytest.mark.parametrize("version", [69, 73])
def test_attention_on_other_versions(version: int, child: Child, tmp_path: Path) -> None:
    row = _floats(attention_row(9, 3, 64, 40, 3))
    got, expected, _ = run_row(row, child, tmp_path, f"qnn:v{version}")
    np.testing.assert_allclose(got.astype(float), expected.astype(float), rtol=0, atol=0.01)


def test_a_language_model(tmp_path: Path) -> None:
    """Against transformers: as near as floats of 16 bits are."""
    model = tiny_model("llama")
    folder = write_checkpoint(tmp_path / "m", model)
    path = satchel.export(folder, tmp_path / "m.satchel", prefill_ar_len=8, **OPTIONS)
    program = Program(path)
    manifest = read_manifest(program)
    assert manifest.bits == FLOATS and set(manifest.encodings.values()) == {HALVES}
    assert manifest.shared and program.metadata["recipe"]["name"] == "fp16"
    got, wanted = Session(program).feed(PROMPT), logits_of(model, np.array(PROMPT))[-1]
    np.testing.assert_allclose(got, wanted, rtol=0, atol=0.02 * np.abs(wanted).max())


class Images(torch.nn.Module):
    """What image models are made of."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.norm = torch.nn.LayerNorm(8)
        self.last = torch.nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.nn.functional.relu6(self.first(x) * 3)
        x = torch.nn.functional.max_pool2d(x, 2)
        x = torch.nn.functional.gelu(self.norm(x.permute(0, 2, 3, 1)))
        return torch.softmax(self.last(x.mean((1, 2))), -1)


def test_a_module_without_calibration(tmp_path: Path) -> None:
    module, x = Images().eval(), torch.rand(1, 3, 16, 16)
    target = OPTIONS["target"]
    path = satchel.export(module, (x,), tmp_path / "m.satchel", recipe="fp16", target=target)
    program = Program(path)
    (got,) = satchel.load(path).method("forward").run(x.numpy())
    with torch.no_grad():
        np.testing.assert_allclose(got, module(x).numpy(), rtol=0, atol=3e-3)
    assert program.metadata["payloads"][target]["bits"] == FLOATS


REFUSED = {
    "v68": ({"target": "qnn:SM8350"}, RecipeError, "v68.*no 16-bit floats.*16a8w"),
    "both": ({"overrides": {"*.down_proj.weight": "16a8w"}}, RecipeError, "not in both"),
    "8 bits of cache": ({"kv_bits": 8}, RecipeError, "KV cache has 16 bits"),
    "guessing": ({"mode": "lookahead"}, ConfigError, "sums of floats have an order"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(tiny_checkpoint: Path, tmp_path: Path, case: str) -> None:
    options, error, message = REFUSED[case]
    with pytest.raises(error, match=message):
        satchel.export(tiny_checkpoint, tmp_path / "m.satchel", **{**OPTIONS, **options})


def test_numbers_that_are_too_large(tmp_path: Path) -> None:
    model = tiny_model("llama")
    with torch.no_grad():
        model.model.layers[0].mlp.up_proj.weight *= 3e4
        model.model.layers[0].mlp.down_proj.weight /= 3e4
    folder = write_checkpoint(tmp_path / "m", model)
    with pytest.raises(RecipeError, match="16-bit floats end at 65504.*16a8w"):
        satchel.export(folder, tmp_path / "m.satchel", mode="kv", **OPTIONS)


def test_numbers_that_are_too_small() -> None:
    check_range("x", 0.0, 0.0)
    check_range("x", -1e-7, 0.0)
    with pytest.raises(RecipeError, match="x reaches 1e-09.*floats begin at 6e-08.*int8"):
        check_range("x", -1e-9, 0.0)


def test_a_matrix_is_its_own_numbers() -> None:
    numbers = np.array([[0.1, -3.0]], np.float32)
    stored: StoredMatrix = in_floats(numbers)
    np.testing.assert_array_equal(stored.numbers(), numbers.astype(np.float16).astype(np.float32))
