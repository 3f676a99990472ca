"""Layers of experts on a Vulkan device, which computes the choice and reads only what is chosen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import satchel
from backends.vulkan.rows import on_device
from backends.vulkan.test_vulkan_chain import in_chains, one_by_one
from models.family_check import TOKENS
from models.model_rows import ROWS as MODELS
from satchel.encodings.encoding import Encoding
from satchel.errors import ExecutionError
from satchel.graph.builder import GraphBuilder
from satchel.graph.ir import DType, Value
from satchel.llm.sampling import Sampler, SamplingOptions
from satchel.llm.session import Session
from satchel.runtime.program import Instance, Program
from support.arrays import i32, integers, normal
from support.programs import stored_values, write_program
from support.tiny_models import tiny_model, write_checkpoint

EXPERTS, COLS, ROWS = 6, 64, 32
Choose = Callable[[GraphBuilder, Value], Value]


def ordered(b: GraphBuilder, chosen: Value) -> Value:
    scores = b.gather(b.input("scores", (5, EXPERTS)), chosen, axis=1)
    return b.slice(b.argsort(scores, axis=1, descending=1), axis=1, start=1, stop=3)


def added(b: GraphBuilder, chosen: Value) -> Value:
    return b.node("add", chosen, chosen)


def instance_of(choose: Choose | None, folder: Path, kind: Encoding, width: int = 2) -> Instance:
    weight = normal(EXPERTS * ROWS, COLS, seed="experts")
    b = GraphBuilder("forward")
    x, chosen = b.input("x", (5, COLS)), b.input("chosen", (5, width), DType.i32)
    activations = "int16" if kind.is_quantized else "f32"
    b.output(
        b.expert_linear(
            x,
            b.weight("w", weight.shape),
            choose(b, chosen) if choose else chosen,
            experts=EXPERTS,
            activations=activations,
        ),
        "y",
    )
    path = write_program(folder / "p.satchel", [b.finish()], {"w": weight}, {"w": kind})
    return on_device(Program(path))


def wanted(x: Any, chosen: Any, kind: Encoding) -> Any:
    weight = stored_values(normal(EXPERTS * ROWS, COLS, seed="experts"), kind)
    matrices = weight.astype(np.float64).reshape(EXPERTS, ROWS, COLS)
    return np.einsum("scrk,sk->scr", matrices[chosen], x)


@pytest.mark.parametrize("binding", [None, "4096"])
@pytest.mark.parametrize("encoding", ["matrix_f16", "matrix_q8", "matrix_q4_steps"])
def test_parts_of_a_matrix_have_each_their_experts(
    encoding: str,
    binding: str | None,
    device: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where a shader sees 4 kB at once, it sees one tile of halves, and an expert has two."""
    kind = Encoding(encoding, 32 if "q" in encoding else 0)
    if binding:
        monkeypatch.setenv("SATCHEL_VULKAN_BINDING", binding)
    instance = instance_of(None, tmp_path, kind)
    assert {part.executor for part in instance.parts} == {"vulkan"}, instance.refusals
    x, chosen = normal(5, COLS), integers(5, 2, below=EXPERTS, seed="chosen").astype(np.int32)
    (got,) = instance.method("forward").run(x, chosen)
    want = wanted(x, chosen, kind)
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-3 * np.abs(want).max())


def test_an_order_chooses(device: dict[str, Any], tmp_path: Path) -> None:
    kind = Encoding("matrix_q8", 32)
    instance = instance_of(ordered, tmp_path, kind, width=4)
    assert {part.executor for part in instance.parts} == {"vulkan"}, instance.refusals
    x, scores = normal(5, COLS), normal(5, EXPERTS, seed="scores")
    scores[0] = np.nan  # an order, too
    numbers = np.argsort(normal(5, EXPERTS, seed="numbers"), 1)[:, :4].astype(np.int32)
    (got,) = instance.method("forward").run(x=x, chosen=numbers, scores=scores)
    order = np.argsort(-np.take_along_axis(scores, numbers, 1), 1, kind="stable")[:, 1:3]
    want = wanted(x, order, kind)
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-3 * np.abs(want).max())


def test_numbers_that_could_be_any_are_the_cpus(device: dict[str, Any], tmp_path: Path) -> None:
    """A shader cannot say that there is no such expert."""
    instance = instance_of(added, tmp_path, Encoding("matrix_f32"))
    assert [(r.op, r.reason) for r in instance.refusals if r.op == "expert_linear"] == [
        ("expert_linear", "the GPU takes computed numbers of entries only where they are an order")
    ]
    x, run = normal(5, COLS), instance.method("forward").run
    chosen = integers(5, 2, below=3, seed="few").astype(np.int32)
    (got,) = run(x, chosen)
    want = wanted(x, 2 * chosen, Encoding("matrix_f32"))
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * np.abs(want).max())
    with pytest.raises(ExecutionError, match="there is no expert 6 among 6"):
        run(x, np.full_like(chosen, 3))


@pytest.mark.parametrize("number", [-1, EXPERTS])
def test_numbers_of_the_caller_are_checked(
    number: int, device: dict[str, Any], tmp_path: Path
) -> None:
    run = instance_of(None, tmp_path, Encoding("matrix_f32")).method("forward").run
    good = np.zeros((5, 2), np.int32)
    x = normal(5, COLS)
    (before,) = run(x, good)
    with pytest.raises(ExecutionError, match=f"there is no expert {number} among 6"):
        run(x, np.where(np.arange(10).reshape(5, 2) == 7, i32(number), good).astype(np.int32))
    np.testing.assert_array_equal(run(x, good)[0], before)


@pytest.mark.parametrize("architecture", ["qwen3_moe", "olmoe"])
def test_a_text_is_chosen_there_by_experts_chosen_there(
    architecture: str, device: dict[str, Any], tmp_path: Path
) -> None:
    """The same tokens, one by one on the CPU and in chains on the device."""
    row = next(row for row in MODELS if row.model_type == architecture)
    folder = write_checkpoint(tmp_path / row.id, tiny_model(architecture, **row.config))
    path = satchel.export(
        folder, tmp_path / "p.satchel", recipe="16a4w", context=96, prefill_ar_len=32
    )
    greedy = Sampler(SamplingOptions(temperature=0))
    texts = [
        way(Session(Program(path, target=target)), list(map(int, TOKENS[:40])), 20, greedy)
        for way, target in ((one_by_one, "cpu"), (in_chains, "vulkan"))
    ]
    assert texts[0] == texts[1] and len(texts[0]) == 20
