"""Steps of many sequences: against the reference, alone and in company, in shared pages."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from satchel.errors import CacheFullError, ExecutionError
from satchel.graph.builder import GraphBuilder
from satchel.graph.ir import DType, Graph, Sym
from satchel.graph.reference import ReferenceInterpreter
from satchel.runtime.program import Instance, Program, load
from support.arrays import generator, normal
from support.programs import write_program

Array = NDArray[Any]
HEADS, KV_HEADS, DIM, CONTEXT, TOKENS = 4, 2, 16, 300, 70
COUNTS = (HEADS, KV_HEADS, KV_HEADS)


def _graph(dtype: DType, tree: bool) -> Graph:
    b = GraphBuilder("tree" if tree else "line")
    rows = (Sym("S", TOKENS),)
    q, k, v = (b.input(n, (*rows, h, DIM)) for n, h in zip("qkv", COUNTS, strict=True))
    names = ["sequence", "position", *(["parents"] if tree else [])]
    where = [b.input(name, rows, DType.i32) for name in names]
    shape = (KV_HEADS, CONTEXT, DIM + (8 if dtype == DType.u8 else 0))
    keys, values = (
        b.cache_write(b.cache(name, shape, dtype), x, *where) for name, x in (("k", k), ("v", v))
    )
    b.output(b.attention(q, keys, values, *where, scale=0.3, window=100, softcap=9.0), "out")
    return b.finish()


@pytest.fixture(scope="module", params=[DType.f32, DType.f16, DType.u8], ids=lambda d: d.name)
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Program:
    path = tmp_path_factory.mktemp("sequences") / "p.satchel"
    graphs = [_graph(request.param, tree) for tree in (False, True)]
    return load(write_program(path, graphs, {}, {}))


def step(lines: list[tuple[int, int, int]], seed: object) -> dict[str, Array]:
    """Random tokens for (sequence, first position, count) each, one after the other."""
    count = sum(line[2] for line in lines)
    given: dict[str, Array] = {
        name: normal(count, heads, DIM, seed=(seed, name))
        for name, heads in zip("qkv", COUNTS, strict=True)
    }
    given["sequence"] = np.concatenate([np.full(n, s, np.int32) for s, _, n in lines])
    positions = [np.arange(at, at + n) for _, at, n in lines]
    given["position"] = np.concatenate(positions).astype(np.int32)
    return given


def mixed_steps(sequences: int) -> Iterator[list[tuple[int, int, int]]]:
    """Prompts in pieces and single tokens of several sequences together, as a server has them."""
    draw, lengths = generator("steps"), [0] * sequences
    for _ in range(30):
        lines = []
        for s in draw.permutation(sequences)[: draw.integers(1, sequences + 1)].tolist():
            count = int(draw.choice([1, 1, 1, 5, 20]))
            if sum(n for _, _, n in lines) + count <= TOKENS and lengths[s] + count <= CONTEXT:
                lines.append((s, lengths[s], count))
                lengths[s] += count
        if lines:
            yield lines


def test_steps_of_many_sequences_are_those_of_the_reference(program: Program) -> None:
    from satchel.program.stored_graphs import read_graphs

    instance = program.instance(2)
    assert [instance.open_sequence() for _ in range(3)] == [1, 2, 3]
    reference = ReferenceInterpreter(lambda weight: program.weight(weight.name), sequences=4)
    graph = read_graphs(program)["line"]
    for number, lines in enumerate(mixed_steps(4)):
        given = step(lines, number)
        out = instance.method("line")(**given)
        np.testing.assert_allclose(out, reference.run(graph, given)["out"], atol=2e-5)


def test_a_sequence_has_the_same_bits_alone_and_in_company(program: Program) -> None:
    together, alone = program.instance(2), program.instance(1)
    for _ in range(3):
        together.open_sequence()
        alone.open_sequence()
    for number, lines in enumerate(mixed_steps(4)):
        given = step(lines, number)
        if len(given["q"]) >= 64:
            continue  # longer blocks may be computed in another order
        out, at = together.method("line")(**given), 0
        for line in lines:
            rows = slice(at, at + line[2])
            mine = alone.method("line")(**{name: array[rows] for name, array in given.items()})
            np.testing.assert_array_equal(out[rows], mine)
            at += line[2]


def test_trees_of_several_sequences(program: Program) -> None:
    instance = program.instance(2)
    other = instance.open_sequence()
    instance.method("line")(**step([(0, 0, 60), (other, 0, 9)], "text"))
    parents = np.array([-1, 0, 0, 2, 1, -1, 5, 5, 7], np.int32)  # two trees: of 5 and of 4 tokens
    depths = np.array([0, 1, 1, 2, 2, 0, 1, 1, 2])
    given = step([(0, 60, 5), (other, 9, 4)], "tree")
    given["position"] = (np.repeat([60, 9], [5, 4]) + depths).astype(np.int32)
    together = instance.method("tree")(**given, parents=parents)
    for rows in (slice(0, 5), slice(5, 9)):
        own = {name: array[rows] for name, array in given.items()}
        parts = np.where(parents[rows] < 0, -1, parents[rows] - rows.start).astype(np.int32)
        np.testing.assert_array_equal(together[rows], instance.method("tree")(**own, parents=parts))


def feed(instance: Instance, sequence: int, at: int, count: int, seed: object) -> Array:
    out: Array = instance.method("line")(**step([(sequence, at, count)], seed))  # type: ignore[assignment]
    return out


def test_a_fork_shares_pages_until_one_writes(program: Program) -> None:
    instance, plain = program.instance(1), program.instance(1)
    for held in (instance, plain):
        for piece in range(3):
            feed(held, 0, piece * 50, 50, piece)  # 150 tokens: two pages and a part
    assert instance.cache_usage.pages == 3
    fork = instance.fork_sequence(0, 150)
    assert instance.cache_usage.pages == 3 and instance.cache_usage.sequences == 2
    second = plain.open_sequence()
    for piece in range(3):
        feed(plain, second, piece * 50, 50, piece)
    # Both write to the page that they share, and neither sees what the other wrote.
    for at in range(150, 154):
        for sequence, other, seed in ((0, 0, "a"), (fork, second, "b")):
            mine = feed(instance, sequence, at, 1, (seed, at))
            np.testing.assert_array_equal(mine, feed(plain, other, at, 1, (seed, at)))
    assert instance.cache_usage.pages == 4 and plain.cache_usage.pages == 6


def test_pages_come_back(program: Program) -> None:
    instance = program.instance(1)
    feed(instance, 0, 0, 60, 1)
    feed(instance, 0, 60, 60, 2)
    fork = instance.fork_sequence(0, 70)
    instance.truncate_sequence(0, 64)
    assert instance.cache_usage.pages == 2  # the fork has the second one still
    instance.close_sequence(fork)
    assert instance.cache_usage.pages == 1
    with pytest.raises(ExecutionError, match=f"there is no sequence {fork}"):
        feed(instance, fork, 0, 1, 3)
    assert instance.open_sequence() == fork  # numbers are used again
    instance.truncate_sequence(0, 0)
    assert instance.cache_usage.pages == 0


def test_a_full_cache_is_an_error_that_changes_nothing(program: Program) -> None:
    page = program.instance(1).cache_usage.page_bytes
    instance = Instance(program, 1, cache_memory=2 * page)
    before = [feed(instance, 0, 0, 60, 1), feed(instance, 0, 60, 60, 2)]
    other = instance.open_sequence()
    with pytest.raises(CacheFullError, match="all of its 2 pages of 64 tokens are in use"):
        feed(instance, other, 0, 1, 3)
    assert instance.cache_usage.pages == 2
    again = [feed(instance, 0, 0, 60, 1), feed(instance, 0, 60, 60, 2)]
    np.testing.assert_array_equal(before, again)
    instance.truncate_sequence(0, 64)
    feed(instance, other, 0, 1, 3)


@pytest.mark.parametrize("rows", [-1, 121, 1 << 40])
def test_rows_that_are_not_there(program: Program, rows: int) -> None:
    instance = program.instance(1)
    feed(instance, 0, 0, 60, 1)
    with pytest.raises(ExecutionError, match="has no .* tokens in the cache"):
        instance.fork_sequence(0, rows)
    with pytest.raises(ExecutionError, match="has no .* tokens in the cache"):
        instance.read_sequence(0, rows)
    for wrong in (-1, 5, 1 << 30):
        with pytest.raises(ExecutionError, match=f"there is no sequence {wrong}"):
            instance.close_sequence(wrong)


def test_a_sequence_goes_on_in_another_instance(program: Program) -> None:
    instance, other = program.instance(1), program.instance(2)
    for piece in range(3):
        feed(instance, 0, piece * 50, 50, piece)
    sequence = other.open_sequence()
    other.write_sequence(sequence, instance.read_sequence(0, 150))
    np.testing.assert_array_equal(
        feed(other, sequence, 150, 9, "on"), feed(instance, 0, 150, 9, "on")
    )


def test_threads_with_sequences_of_their_own(program: Program) -> None:
    """They share the instance, and each gets what it would get alone."""
    instance = program.instance(2)
    wanted = [feed(program.instance(1), 0, 0, 40, seed) for seed in range(4)]
    wrong: list[int] = []

    def work(seed: int) -> None:
        for _ in range(20):
            sequence = instance.open_sequence()
            if not np.array_equal(feed(instance, sequence, 0, 40, seed), wanted[seed]):
                wrong.append(seed)
            instance.close_sequence(sequence)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and instance.cache_usage.pages == 0


def test_what_is_collected_behind_a_run_may_wait_for_other_threads(program: Program) -> None:
    """As the end of a generation that nobody holds does, for one who changes sequences: if the run
    were not over while Python's objects are made, both would wait for ever."""
    instance = program.instance(1)
    asked, answered, done = threading.Event(), threading.Event(), threading.Event()
    in_time: list[bool] = []

    def change_sequences() -> None:
        while asked.wait(30) and not done.is_set():
            asked.clear()
            instance.close_sequence(instance.open_sequence())
            answered.set()

    def collected(phase: str, info: object) -> None:
        if phase == "start" and threading.current_thread() is threading.main_thread():
            answered.clear()
            asked.set()
            in_time.append(answered.wait(5))

    other = threading.Thread(target=change_sequences, daemon=True)
    other.start()
    inputs = step([(0, 0, 1)], "collected")
    run = instance.method("line")
    before = gc.get_threshold()
    gc.callbacks.append(collected)
    try:
        gc.set_threshold(1)
        while len(in_time) < 40 and all(in_time):
            run(**inputs)
            instance.truncate_sequence(0, 0)
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(collected)
        done.set()
        asked.set()
        other.join(10)
    assert all(in_time)


def test_a_program_without_caches_has_no_sequences(tmp_path: Path) -> None:
    b = GraphBuilder("forward")
    b.output(b.neg(b.input("x", (2,))), "y")
    instance = load(write_program(tmp_path / "p.satchel", [b.finish()], {}, {})).instance(1)
    with pytest.raises(ExecutionError, match="no caches"):
        instance.open_sequence()
    assert instance.cache_usage.pages == 0


def test_queries_at_one_position_see_all_that_there_is(program: Program) -> None:
    """As over an encoder's output, which is written once and does not grow."""
    instance = program.instance(2)
    feed(instance, 0, 0, 40, 1)
    given = step([(0, 39, 1)] * 5, "level")
    given["k"][:], given["v"][:] = given["k"][-1], given["v"][-1]  # the last one stays
    together = instance.method("line")(**given)
    for i in range(5):
        alone = instance.method("line")(**{name: array[i : i + 1] for name, array in given.items()})
        np.testing.assert_array_equal(together[i], alone[0])
