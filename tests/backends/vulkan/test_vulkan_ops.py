"""The op table on a Vulkan device, against the reference."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ops.op_table import CASES
from ops.rows_on_target import Joined, TargetRow
from satchel import _native
from satchel.runtime.program import Instance, Program
from support.compare import assert_close
from support.op_case import Input, OpCase, State
from support.programs import write_program

# The ops that shaders exist for, and what a row of the table may have that they do not take.
OPS = {
    *("linear", "embedding", "cache_write", "cache_move", "attention"),
    *("rms_norm", "layer_norm", "softmax", "rope_table", "rope", "take_rows"),
    *("add", "sub", "mul", "div", "silu_mul", "gelu_tanh_mul", "affine", "clamp"),
    *("neg", "abs", "exp", "sqrt", "rsqrt", "relu", "hardswish", "hardsigmoid", "silu"),
    *("gelu", "gelu_tanh", "sigmoid", "tanh", "reshape", "transpose", "slice", "concat", "take"),
    *("conv2d", "conv_transpose2d", "qconv2d", "qlinear", "max_pool2d", "avg_pool2d"),
    *("quantize", "dequantize", "lookup", "qadd", "qmul", "qmean"),
    *("reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod"),
    *("attention_full", "attention_qkv", "qattention_qkv"),
}
# Shaders divide and take roots and powers to a few units in the last place, not to the last.
_LOOSER = 4.0
# Rows of a program: some drivers take hundreds of megabytes for each shader that they compile.
_TOGETHER = 24


def on_device(program: Program) -> Instance:
    return Instance(program, threads=1, executors=[_native.vulkan.executor(0)])


def _has_state(case: OpCase) -> bool:
    return any(isinstance(slot, State) for slot in case.slots)


def _row(case: OpCase) -> TargetRow:
    given = iter(case.calls[0])
    slots = tuple(
        replace(slot, shape=next(given).shape) if isinstance(slot, Input) else slot
        for slot in case.slots
    )
    return TargetRow(replace(case, slots=slots, calls=case.calls[:1]), case.calls[0])


def _has_tiny(case: OpCase) -> bool:
    """Numbers that a device may take for zero."""
    floats = [a for a in case.calls[0] if a.dtype == np.float32]
    return any(((a != 0) & (np.abs(a) < np.finfo(np.float32).tiny)).any() for a in floats)


def _rows() -> dict[str, list[TargetRow]]:
    rows: dict[str, list[TargetRow]] = defaultdict(list)
    for case in CASES:
        empty = any(array.size == 0 for array in case.calls[0])
        if case.op in OPS and not (_has_state(case) or _has_tiny(case) or empty):
            rows[case.op].append(_row(case))
    return rows


_ROWS = _rows()
_WITH_STATES = [case for case in CASES if case.op in OPS and _has_state(case)]


@pytest.mark.parametrize("op", sorted(_ROWS))
def test_all_rows_of_an_op(op: str, device: dict[str, Any], tmp_path: Path) -> None:
    rows, refused = _ROWS[op], 0
    for first in range(0, len(rows), _TOGETHER):
        refused += _check_rows(op, rows[first : first + _TOGETHER], tmp_path / f"{first}.satchel")
    assert refused < len(rows)


def _check_rows(op: str, rows: list[TargetRow], path: Path) -> int:
    """How many of them are the CPU's."""
    joined = Joined(rows)
    arrays = {name: slot.array for name, slot in joined.weights.items()}
    encodings = {name: slot.encoding for name, slot in joined.weights.items()}
    instance = on_device(Program(write_program(path, [joined.graph], arrays, encodings)))
    for part in instance.parts:
        assert part.executor in ("vulkan", "cpu")
    for _ in range(2):  # the same places again
        got = instance.method("forward").run(**joined.inputs)
        for row, array in zip(rows, got, strict=True):
            (want,) = row.case.run_reference()
            assert array.dtype == want.dtype
            assert_close(array, want, row.case.tolerance * _LOOSER, row.case.id)
    return sum(r.nodes for r in instance.refusals if r.op == op)


@pytest.mark.parametrize("case", _WITH_STATES, ids=lambda case: case.id)
def test_rows_with_caches(case: OpCase, device: dict[str, Any], tmp_path: Path) -> None:
    program = Program(case.write(tmp_path / "p.satchel"))
    instance = on_device(program)
    # Rows of caches that are no whole words are the CPU's.
    whole = all(s["bytes"] // int(np.prod(s["shape"][:-1])) % 4 == 0 for s in program.states)
    assert ({part.executor for part in instance.parts} != {"cpu"}) == whole, instance.refusals
    for inputs, want in zip(case.calls, case.run_reference(), strict=True):
        (got,) = instance.method("forward").run(*inputs)
        if want.dtype == np.uint8 and whole:
            _check_bytes(got, want)
        else:
            assert_close(got, want, case.tolerance * _LOOSER, case.id)


def _check_bytes(got: NDArray[np.uint8], want: NDArray[np.uint8]) -> None:
    """Rows of codes, which are the same, and a scale and a zero, which a division may touch."""
    np.testing.assert_array_equal(got[..., :-8], want[..., :-8])
    tails = (np.ascontiguousarray(rows[..., -8:]).view(np.float32) for rows in (got, want))
    np.testing.assert_allclose(*tails, rtol=3e-7)


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
    [("matrix_q5", 32), ("matrix_q5_min", 32), ("matrix_q4_k", 32), ("matrix_q6_k", 16)],
)
def test_packed_bits_are_the_cpus(
    encoding: str, group: int, device: dict[str, Any], tmp_path: Path
) -> None:
    """No shader reads them, and what is around them still runs on the device."""
    from satchel.encodings.encoding import Encoding
    from satchel.graph.builder import GraphBuilder
    from support.arrays import normal
    from support.programs import stored_values

    weight, kind = normal(48, 256, seed=encoding), Encoding(encoding, group)
    b = GraphBuilder("forward")
    x = b.input("x", (3, 256))
    matrix = b.weight("w", weight.shape, "linear")
    b.output(b.silu(b.node("linear", b.silu(x), matrix, activations="int16")), "y")
    path = write_program(tmp_path / "p.satchel", [b.finish()], {"w": weight}, {"w": kind})
    instance = on_device(Program(path))
    assert [part.executor for part in instance.parts] == ["vulkan", "cpu", "vulkan"]
    assert [(r.op, r.reason) for r in instance.refusals] == [
        ("linear", f"the GPU has no products with {encoding}")
    ]
    numbers = normal(3, 256)

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
