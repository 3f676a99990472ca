"""The op table on a Vulkan device, against the reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from backends.vulkan.rows import OPS, ROWS, WITH_STATES, check_op, check_with_states, on_device
from ops.op_table import CASES
from satchel import _native
from satchel.runtime.program import Program
from support.op_case import OpCase
from support.programs import write_program


@pytest.mark.parametrize("op", sorted(ROWS))
def test_all_rows_of_an_op(op: str, device: dict[str, Any], tmp_path: Path) -> None:
    check_op(op, tmp_path)


@pytest.mark.parametrize("case", WITH_STATES, ids=lambda case: case.id)
def test_rows_with_caches(case: OpCase, device: dict[str, Any], tmp_path: Path) -> None:
    check_with_states(case, tmp_path / "p.satchel")


def test_the_list_is_whole() -> None:
    assert set(_native.vulkan.ops()) == OPS


def test_every_refusal_has_a_reason(device: dict[str, Any], tmp_path: Path) -> None:
    for number, case in enumerate(CASES[::7]):
        instance = on_device(Program(case.write(tmp_path / f"{number}.satchel")))
        placed = sum(part.last - part.first for part in instance.parts if part.executor == "cpu")
        if case.op not in OPS:
            assert any(
                r.op == case.op and "no shader for" in r.reason for r in instance.refusals
            ) or not any(n.op == case.op for n in case.graph().nodes)
        assert placed == 0 or instance.refusals
        assert all(len(r.reason) > 10 for r in instance.refusals)


@pytest.mark.parametrize("encoding", ["matrix_f32", "matrix_f16", "matrix_q8", "matrix_q4"])
def test_tables_larger_than_a_binding_are_split_by_rows(
    encoding: str, device: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from satchel.encodings.encoding import Encoding
    from satchel.graph.builder import GraphBuilder
    from satchel.graph.ir import DType
    from support.arrays import integers, normal
    from support.programs import stored_values

    table = normal(1000, 64, seed=encoding)
    kind = Encoding(encoding, 32 if "q" in encoding else 0)
    b = GraphBuilder("forward")
    ids = b.input("ids", (50,), DType.i32)
    weight = b.weight("table", table.shape, "linear")
    looked_up = b.embedding(ids, weight)
    b.output(looked_up, "rows")
    attrs = {"activations": "int16"} if kind.is_quantized else {}
    b.output(b.node("linear", looked_up, weight, **attrs), "logits")
    path = write_program(tmp_path / "p.satchel", [b.finish()], {"table": table}, {"table": kind})
    monkeypatch.setenv("SATCHEL_VULKAN_BINDING", "262144")
    numbers = integers(50, below=1000, seed="ids")
    instance = on_device(Program(path))
    assert {part.executor for part in instance.parts} == {"vulkan"}, instance.refusals
    rows, logits = instance.method("forward").run(numbers)
    values = stored_values(table, kind)
    np.testing.assert_allclose(rows, values[numbers], rtol=1e-6)
    np.testing.assert_allclose(logits, values[numbers] @ values.T, rtol=0, atol=5e-3)


@pytest.mark.parametrize(
    ("encoding", "group"),
    [
        ("matrix_q5", 32),
        ("matrix_q5_min", 32),
        ("matrix_q4_k", 32),
        ("matrix_q5_k", 32),
        ("matrix_q6_k", 16),
    ],
)
@pytest.mark.parametrize("without", ["", "integer_dot"])
@pytest.mark.parametrize("tokens", [1, 3, 20])
def test_packed_bits_are_read_there(
    tokens: int,
    without: str,
    encoding: str,
    group: int,
    device: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By whole numbers and by floats."""
    from satchel.encodings.encoding import Encoding
    from satchel.graph.builder import GraphBuilder
    from support.arrays import normal
    from support.programs import stored_values

    weight, kind = normal(48, 256, seed=encoding), Encoding(encoding, group)
    b = GraphBuilder("forward")
    x = b.input("x", (tokens, 256))
    matrix = b.weight("w", weight.shape, "linear")
    b.output(b.silu(b.node("linear", b.silu(x), matrix, activations="int16")), "y")
    path = write_program(tmp_path / "p.satchel", [b.finish()], {"w": weight}, {"w": kind})
    monkeypatch.setenv("SATCHEL_VULKAN_WITHOUT", without)
    instance = on_device(Program(path))
    assert [part.executor for part in instance.parts] == ["vulkan"] and not instance.refusals
    numbers = normal(tokens, 256)

    def silu(v: NDArray[np.float64]) -> NDArray[np.float64]:
        return v / (1 + np.exp(-v))

    (got,) = instance.method("forward").run(numbers)
    want = silu(silu(numbers.astype(float)) @ stored_values(weight, kind).astype(float).T)
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-3 * np.abs(want).max())


# Long rows are split among workgroups.
@pytest.mark.parametrize(
    ("tokens", "runs"), [(1, 2), (12, 2), (20, 2), (50, 2), (150, 2), (12, 8), (50, 5)]
)
@pytest.mark.parametrize("finest", [1.0, 0.02])
def test_blocks_of_tokens_over_runs_of_columns(
    finest: float, tokens: int, runs: int, device: dict[str, Any], tmp_path: Path
) -> None:
    """Scales that are multiples of a step, small ones and large ones, over several runs of 1,024
    columns and a rest. Activations are whole numbers, so that nothing is left to rounding."""
    from satchel.encodings.encoding import Encoding
    from satchel.graph.builder import GraphBuilder
    from support.arrays import integers, normal
    from support.programs import stored_values

    rows, cols = 83, runs * 1024 + 320
    weight = normal(rows, cols, seed=("runs", finest))
    # Groups of very different sizes want finer steps.
    weight *= np.repeat(finest ** normal(rows, cols // 32, seed="sizes").clip(-1, 1), 32, axis=1)
    kind = Encoding("matrix_q4_steps", 32)
    b = GraphBuilder("forward")
    x = b.input("x", (tokens, cols))
    matrix = b.weight("w", weight.shape, "linear")
    b.output(b.node("linear", x, matrix, activations="int8"), "y")
    path = write_program(tmp_path / "p.satchel", [b.finish()], {"w": weight}, {"w": kind})
    codes = integers(tokens, cols, below=255, seed="x").astype(np.float32) - 127
    codes[:, 7] = 127
    instance = on_device(Program(path))
    assert {part.executor for part in instance.parts} == {"vulkan"}, instance.refusals
    (got,) = instance.method("forward").run(codes / 32)
    want = codes.astype(np.float64) @ stored_values(weight, kind).astype(np.float64).T / 32
    np.testing.assert_allclose(got, want, rtol=0, atol=2e-5 * np.abs(want).max())
