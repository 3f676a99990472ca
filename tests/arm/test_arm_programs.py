"""Loader and executor on an emulated Arm: the op table, a language model and an integer network.

``program_run`` also ends when a worker of the thread pool allocates memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import satchel
from arm.kernel_program import EMULATOR
from ops.op_table import CASES
from satchel.encodings.encoding import Encoding
from satchel.graph.builder import GraphBuilder
from satchel.graph.ir import DType
from support.arrays import normal
from support.compare import assert_close
from support.program_jobs import Array, Job, run_jobs
from support.programs import write_program
from support.tiny_llm import write_tiny_llm

TABLES = ["portable", "neon", "dotprod", "i8mm"]


@pytest.fixture(scope="module")
def arm(arm_folder: Path) -> list[str]:
    return [EMULATOR, "-cpu", "max", str(arm_folder / "program_run")]


@dataclass
class OpJobs:
    """The op table as programs, and what the reference makes of each."""

    jobs: list[Job]
    wanted: list[list[Array]]


@pytest.fixture(scope="module")
def op_table(tmp_path_factory: pytest.TempPathFactory) -> OpJobs:
    folder = tmp_path_factory.mktemp("ops")
    jobs = [
        Job(case.write(folder / f"{i}.satchel"), [("forward", c) for c in case.calls])
        for i, case in enumerate(CASES)
    ]
    return OpJobs(jobs, [case.run_reference() for case in CASES])


# All rows with the table that has most of its own; of each other table a third, to save time.
@pytest.mark.parametrize(
    ("table", "first", "step"),
    [("i8mm", 0, 1), ("dotprod", 0, 3), ("neon", 1, 3), ("portable", 2, 3)],
)
def test_op_table(
    table: str, first: int, step: int, arm: list[str], op_table: OpJobs, tmp_path: Path
) -> None:
    cases, wanted = CASES[first::step], op_table.wanted[first::step]
    answers = run_jobs(arm, op_table.jobs[first::step], tmp_path, table)
    assert [answer.kernels for answer in answers] == [table] * len(cases)
    for case, results, answer in zip(cases, wanted, answers, strict=True):
        for got, want in zip(answer.calls, results, strict=True):
            assert not isinstance(got, str), f"{case.id}: {got}"
            assert got[0].dtype == want.dtype
            assert_close(got[0], want, case.tolerance, f"{case.id} on {table}")


def test_language_model(arm: list[str], tmp_path: Path) -> None:
    """A prompt and three tokens behind it, as this machine computes them."""
    folder = write_tiny_llm(tmp_path / "checkpoint")
    path = Path(satchel.export(folder, tmp_path / "llm.satchel", recipe="8da4w", group_size=32))
    program = satchel.load(path)
    tokens = np.arange(5, 42, dtype=np.int32)
    instance = program.instance(threads=2)
    calls, wanted = [], []
    for at, count in ((0, 34), (34, 1), (35, 1), (36, 1)):
        method = "prefill_forward" if count > 1 else "kv_forward"
        given = {
            "tokens": tokens[at : at + count],
            "position": np.arange(at, at + count, dtype=np.int32),
            "sequence": np.zeros(count, np.int32),  # the one that every instance has
            "rows": np.array([count - 1], np.int32),
        }
        info = next(m for m in program.methods if m["name"] == method)
        inputs = [given[value["name"]] for value in info["inputs"]]
        calls.append((method, inputs))
        wanted.append(instance.method(method).run(*inputs)[0])
    for table in TABLES:
        (answer,) = run_jobs(arm, [Job(path, calls)], tmp_path, table)
        for got, want in zip(answer.calls, wanted, strict=True):
            assert not isinstance(got, str), got
            assert_close(got[0], want, 2e-3, table)
            assert np.abs(want).max() > 0.1


def test_integer_network(arm: list[str], tmp_path: Path) -> None:
    """Every table gives the same codes as this machine: sums of integers are exact."""
    torch = pytest.importorskip("torch")
    nn = torch.nn
    torch.manual_seed(5)
    module = nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1, groups=16),
        nn.Hardswish(),
        nn.Conv2d(16, 40, 3, padding=1),
        nn.ReLU6(),
        nn.Conv2d(40, 24, 1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(24, 10),
    ).eval()
    x = torch.randn(1, 3, 37, 45)
    path = satchel.export(module, (x,), tmp_path / "x.satchel", recipe="int8", calibration=[x])
    (want,) = satchel.load(path).instance(threads=2).method("forward").run(x.numpy())
    for table in TABLES:
        (answer,) = run_jobs(arm, [Job(Path(path), [("forward", [x.numpy()])])], tmp_path, table)
        (got,) = answer.calls
        assert not isinstance(got, str), got
        np.testing.assert_array_equal(got[0], want, table)
    with torch.no_grad():
        assert_close(want, module(x).numpy(), 0.1)


def test_workers_allocate_nothing(arm: list[str], tmp_path: Path) -> None:
    """Rows of an embedding whose groups have offsets, and orders, once had a vector each."""
    b = GraphBuilder("forward")
    ids = b.input("ids", (4096,), DType.i32)
    rows = b.node("embedding", ids, b.weight("table", (64, 96)))
    b.output(rows, "y")
    b.output(b.node("argsort", rows, axis=1), "order")
    weight = normal(64, 96)
    kinds = {"table": Encoding("matrix_q4_min", 32)}
    path = write_program(tmp_path / "x.satchel", [b.finish()], {"table": weight}, kinds)
    numbers = np.arange(4096, dtype=np.int32) % 64
    (answer,) = run_jobs(arm, [Job(path, [("forward", [numbers])] * 4)], tmp_path, "i8mm")
    for got in answer.calls:
        assert not isinstance(got, str), got
        assert np.abs(got[0] - weight[numbers]).max() < 0.2 * np.abs(weight).max()
        np.testing.assert_array_equal(got[1], np.argsort(got[0], axis=1, kind="stable"))


def test_errors_are_told(arm: list[str], tmp_path: Path, op_table: OpJobs) -> None:
    good = op_table.jobs[0]
    damaged = tmp_path / "damaged.satchel"
    data = bytearray(good.program.read_bytes())
    data[20] ^= 1
    damaged.write_bytes(data)
    wrong_method = Job(good.program, [("backward", good.calls[0][1])])
    answers = run_jobs(arm, [wrong_method], tmp_path, "neon")
    assert answers[0].calls == ["there is no method 'backward'"]
    answers = run_jobs(arm, [good, Job(damaged, [])], tmp_path, "neon")
    assert isinstance(answers[0].calls[-1], str) and len(answers[0].calls) == len(good.calls) + 1
