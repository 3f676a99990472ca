"""Methods whose parts run in several places: the same bits as on the CPU alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import satchel
from satchel import _native
from satchel.errors import ExecutionError
from satchel.graph.builder import GraphBuilder
from satchel.graph.ir import DType, Sym
from satchel.llm.session import Session
from satchel.runtime.program import Instance, Program, load
from support.arrays import generator, normal
from support.program_file import Method, read
from support.programs import write_program
from support.tiny_llm import write_tiny_llm

TEXT = [3, 14, 15, 9, 26, 5, 35, 8, 9, 7] * 9


def beside(program: Program, *chips: Iterable[str]) -> Instance:
    """An instance with executors of their own memory, which take these ops."""
    executors = [_native.cpu_executor(f"chip{i}", set(ops)) for i, ops in enumerate(chips)]
    return Instance(program, threads=2, executors=executors)


@pytest.fixture(scope="module")
def language_model(tmp_path_factory: pytest.TempPathFactory) -> Program:
    folder = tmp_path_factory.mktemp("executors")
    checkpoint = write_tiny_llm(folder / "tiny")
    return load(
        satchel.export(
            checkpoint, folder / "p.satchel", group_size=32, context=160, prefill_ar_len=80
        )
    )


def answers(instance: Instance) -> list[NDArray[Any]]:
    """A prompt of more than a page, a fork that writes to shared pages, and both going on."""
    first = Session(instance.program, instance=instance)
    found = [first.feed(TEXT)]
    second = first.fork(70)
    found += [second.feed(TEXT[:3]), first.feed([1]), second.feed([2]), first.feed([3])]
    return found


def stored_methods(program: Program) -> list[Method]:
    return read(program.path.read_bytes()).methods


def ops_of(program: Program) -> list[str]:
    return sorted({node.op for method in stored_methods(program) for node in method.nodes})


def test_any_division_has_the_same_bits(language_model: Program) -> None:
    wanted = answers(Instance(language_model, threads=2))
    ops = ops_of(language_model)
    assert {"attention", "cache_write", "embedding", "linear"} <= set(ops)
    random = generator("divisions")
    divisions: list[Sequence[Iterable[str]]] = [[ops], [["linear"]], [["cache_write"]]]
    divisions += [[["attention", "cache_write"]], [["linear"], [o for o in ops if o != "linear"]]]
    for _ in range(6):
        chip = random.integers(0, 3, len(ops))
        divisions.append([[o for o, c in zip(ops, chip, strict=True) if c == n] for n in (1, 2)])
    for chips in divisions:
        instance = beside(language_model, *chips)
        for got, want in zip(answers(instance), wanted, strict=True):
            np.testing.assert_array_equal(got, want)


def test_what_runs_where_is_told(language_model: Program) -> None:
    instance = beside(language_model, ["linear"])
    parts = [part for part in instance.parts if part.method == "kv_forward"]
    nodes = next(m for m in stored_methods(language_model) if m.name == "kv_forward").nodes
    assert [p.first for p in parts[1:]] == [p.last for p in parts[:-1]]
    assert parts[0].first == 0 and parts[-1].last == len(nodes)
    for part in parts:
        on_chip = {node.op == "linear" for node in nodes[part.first : part.last]}
        assert on_chip == {part.executor == "chip0"}
        assert (part.values_in > 0) == (part.values_out > 0) == (part.executor == "chip0")
    assert ("chip0", "rms_norm", "chip0 has no op rms_norm") in [r[:3] for r in instance.refusals]
    # A cache lies in one place: what writes it and what reads it stay together.
    apart = beside(language_model, ["cache_write"])
    assert {part.executor for part in apart.parts} == {"cpu"}


@pytest.mark.parametrize("ops", [["state_write", "add"], ["add"], ["reduce_sum"]])
def test_states_lie_with_their_owner(tmp_path: Path, ops: list[str]) -> None:
    b = GraphBuilder("count")
    x = b.input("x", (Sym("S", 8), 4))
    total = b.add(b.state("total", (4,), DType.f32), b.reduce_sum(x, axes=(0,), keepdims=0))
    b.state_write(b.state("total", (4,), DType.f32), total)
    b.output(b.affine(total, scale=2.0), "double")
    program = load(write_program(tmp_path / "p.satchel", [b.finish()], {}, {}))
    plain, divided = Instance(program, 1), beside(program, ops)
    for call in range(4):
        x_now = normal(1 + call, 4, seed=call)
        want, got = (i.method("count")(x_now) for i in (plain, divided))
        np.testing.assert_array_equal(got, want)
    assert np.abs(np.asarray(want)).max() > 0
    for instance in (plain, divided):
        instance.reset()
    want, got = (i.method("count")(x_now) for i in (plain, divided))
    np.testing.assert_array_equal(got, want)


def test_an_executor_serves_one_instance(language_model: Program) -> None:
    executor = _native.cpu_executor("chip", {"linear"})
    Instance(language_model, executors=[executor])
    with pytest.raises(ExecutionError, match="serves another instance"):
        Instance(language_model, executors=[executor])


def test_sequences_are_read_and_written_where_they_lie(language_model: Program) -> None:
    """As a conversation is kept in a file and taken up elsewhere."""
    chip, plain = beside(language_model, ops_of(language_model)), Instance(language_model)
    session = Session(language_model, instance=chip)
    session.feed(TEXT)
    kept = chip.read_sequence(session.sequence, len(TEXT))
    taken = plain.open_sequence()
    plain.write_sequence(taken, kept)
    for name, rows in plain.read_sequence(taken, len(TEXT)).items():
        assert rows.any()
        np.testing.assert_array_equal(rows, kept[name])
