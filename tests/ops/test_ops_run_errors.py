"""Values that no type rule can check: reference and native core refuse them alike."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import satchel
from ops.rows_attention import where
from satchel.errors import ExecutionError
from satchel.graph.builder import GraphBuilder
from satchel.graph.ir import Attribute, DType, Graph, Value
from satchel.graph.ops import find_op
from satchel.graph.reference import ReferenceInterpreter
from support.arrays import i32, normal
from support.programs import write_program

Run = Callable[..., object]


def _take_rows() -> Graph:
    b = GraphBuilder("forward")
    b.output(b.take_rows(b.input("x", (3, 2)), b.input("rows", (1,), DType.i32)))
    return b.finish()


def _by_number(op: str) -> Graph:
    b = GraphBuilder("forward")
    b.output(b.node(op, b.input("x", (3,)), b.input("numbers", (1,), DType.i32), axis=0))
    return b.finish()


def _embedding() -> Graph:
    b = GraphBuilder("forward")
    ids = b.input("ids", (2,), DType.i32)
    b.output(b.embedding(ids, b.weight("table", (5, 4), "embedding")))
    return b.finish()


def _where(b: GraphBuilder, tokens: int) -> list[Value]:
    return [b.input(name, (tokens,), DType.i32) for name in ("sequence", "position")]


def _cache_write() -> Graph:
    b = GraphBuilder("forward")
    x, at = b.input("x", (2, 1, 4)), _where(b, 2)
    cache = b.cache_write(b.state("cache", (1, 6, 4), DType.f32), x, *at)
    b.output(b.reshape(cache, shape=(24,)))
    return b.finish()


def _attention() -> Graph:
    b = GraphBuilder("forward")
    q, k = b.input("q", (2, 1, 4)), b.input("k", (1, 6, 4))
    b.output(b.attention(q, k, k, *_where(b, 2), scale=1.0))
    return b.finish()


def _tree_attention() -> Graph:
    b = GraphBuilder("forward")
    q, k = b.input("q", (3, 1, 4)), b.input("k", (1, 6, 4))
    at, parents = _where(b, 3), b.input("parents", (3,), DType.i32)
    b.output(b.attention(q, k, k, *at, parents, scale=1.0))
    return b.finish()


def _cache_move() -> Graph:
    b = GraphBuilder("forward")
    rows, at = b.input("rows", (2,), DType.i32), _where(b, 1)
    cache = b.cache_move(b.state("cache", (1, 6, 4), DType.f32), rows, *at)
    b.output(b.reshape(cache, shape=(24,)))
    return b.finish()


@pytest.fixture(params=["reference", "native"])
def runner(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Graph], Run]:
    """Makes a graph into a function of its inputs, on either of the two."""
    weights = {"table": normal(5, 4), "w": normal(48, 4)}

    def make(graph: Graph) -> Run:
        if request.param == "reference":
            interpreter = ReferenceInterpreter(lambda weight: weights[weight.name])
            names = [v.name for v in graph.inputs]
            return lambda *a: interpreter.run(graph, dict(zip(names, a, strict=True)))
        needed = {w.name: weights[w.name] for w in graph.weights()}
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.satchel"
        return satchel.load(write_program(path, [graph], needed)).method()

    return make


@pytest.mark.parametrize("row", [-1, 3])
def test_row_out_of_range(runner: Callable[[Graph], Run], row: int) -> None:
    run = runner(_take_rows())
    run(normal(3, 2), i32(2))
    with pytest.raises(ExecutionError, match=f"there is no row {row}"):
        run(normal(3, 2), i32(row))


@pytest.mark.parametrize("number", [-1, 3])
@pytest.mark.parametrize("op", ["take", "gather"])
def test_entry_out_of_range(runner: Callable[[Graph], Run], op: str, number: int) -> None:
    run = runner(_by_number(op))
    run(normal(3), i32(2))
    with pytest.raises(ExecutionError, match=f"there is no entry {number}"):
        run(normal(3), i32(number))


def _experts() -> Graph:
    b = GraphBuilder("forward")
    x, chosen = b.input("x", (1, 4)), b.input("chosen", (1, 2), DType.i32)
    b.output(b.expert_linear(x, b.weight("w", (48, 4)), chosen, experts=3))
    return b.finish()


@pytest.mark.parametrize("number", [-1, 3])
def test_expert_out_of_range(runner: Callable[[Graph], Run], number: int) -> None:
    run = runner(_experts())
    run(normal(1, 4), i32(2, 0).reshape(1, 2))
    with pytest.raises(ExecutionError, match=f"there is no expert {number} among 3"):
        run(normal(1, 4), i32(0, number).reshape(1, 2))


def _scatter() -> Graph:
    b = GraphBuilder("forward")
    x, source = b.input("x", (3,)), b.input("source", (1,))
    b.output(b.scatter(x, b.input("numbers", (1,), DType.i32), source, axis=0, kind="set"))
    return b.finish()


@pytest.mark.parametrize("number", [-1, 3])
def test_nothing_is_put_out_of_range(runner: Callable[[Graph], Run], number: int) -> None:
    run = runner(_scatter())
    run(normal(3), normal(1), i32(2))
    with pytest.raises(ExecutionError, match=f"there is no entry {number}"):
        run(normal(3), normal(1), i32(number))


def _integers(op: str, **attrs: Attribute) -> Graph:
    b = GraphBuilder("forward")
    inputs = [b.input(n, (2,), DType.i64) for n in ("a", "b")[: find_op(op).arity[0]]]
    b.output(b.node(op, *inputs, **attrs))
    return b.finish()


@pytest.mark.parametrize("kind", ["floor_div", "trunc_div", "remainder", "fmod"])
def test_division_by_zero(runner: Callable[[Graph], Run], kind: str) -> None:
    run = runner(_integers("integer", kind=kind))
    run(np.array([7, 8]), np.array([2, -1]))
    with pytest.raises(ExecutionError, match="divided by zero"):
        run(np.array([7, 8]), np.array([2, 0]))


@pytest.mark.parametrize("number", [2**31, -(2**31) - 1, 2**32 + 1])
def test_a_number_that_32_bits_do_not_hold(runner: Callable[[Graph], Run], number: int) -> None:
    run = runner(_integers("cast", dtype="i32", checked=1))
    run(np.array([2**31 - 1, -(2**31)]))
    with pytest.raises(ExecutionError, match=f"there is no entry {number}"):
        run(np.array([1, number]))


@pytest.mark.parametrize("token", [-1, 5])
def test_token_out_of_range(runner: Callable[[Graph], Run], token: int) -> None:
    run = runner(_embedding())
    run(i32(0, 4))
    with pytest.raises(ExecutionError, match=f"there is no token {token}"):
        run(i32(0, token))


@pytest.mark.parametrize("start", [-1, 5, 2**31 - 1])
def test_tokens_past_the_end_of_a_cache(runner: Callable[[Graph], Run], start: int) -> None:
    run = runner(_cache_write())
    run(normal(2, 1, 4), *where(2, 4))
    with pytest.raises(ExecutionError, match="do not fit in a context of 6"):
        run(normal(2, 1, 4), *where(2, start))


def _window_attention() -> Graph:
    b = GraphBuilder("forward")
    x, bias = b.input("x", (1, 4, 3, 1, 4)), b.input("bias", (2, 1, 2, 2))
    rows, kinds = b.input("rows", (2, 2), DType.i32), b.input("kinds", (2,), DType.i32)
    b.output(b.attention_qkv(x, bias, rows, kinds, scale=1.0))
    return b.finish()


@pytest.mark.parametrize(
    ("rows", "kinds", "message"),
    [
        ((0, 1, 2, 4), (0, 1), "there is no row 4 among 4"),
        ((0, -1, 2, 3), (0, 1), "there is no row -1 among 4"),
        ((0, 1, 2, 2), (0, 1), "rows are named more than once"),
        ((3, 1, 0, 2), (0, 2), "there is no bias 2 among 2"),
        ((3, 1, 0, 2), (-1, 0), "there is no bias -1 among 2"),
    ],
)
def test_windows_that_do_not_exist(
    runner: Callable[[Graph], Run], rows: tuple[int, ...], kinds: tuple[int, ...], message: str
) -> None:
    run = runner(_window_attention())
    x, bias = normal(1, 4, 3, 1, 4), normal(2, 1, 2, 2)
    run(x, bias, i32(3, 0, 2, 1).reshape(2, 2), i32(1, 1))
    with pytest.raises(ExecutionError, match=message):
        run(x, bias, i32(*rows).reshape(2, 2), i32(*kinds))


@pytest.mark.parametrize("start", [-1, 5])
def test_attention_past_the_end_of_a_cache(runner: Callable[[Graph], Run], start: int) -> None:
    run = runner(_attention())
    run(normal(2, 1, 4), normal(1, 6, 4), *where(2, 4))
    with pytest.raises(ExecutionError, match="do not fit in a context of 6"):
        run(normal(2, 1, 4), normal(1, 6, 4), *where(2, start))


BAD_PARENTS = [((0, 0, 1), 0, 0), ((-1, 1, 0), 1, 1), ((-1, 2, 0), 1, 2), ((-1, 0, -2), 2, -2)]
BAD_PARENTS += [((-1, 0, 2**31 - 1), 2, 2**31 - 1)]


@pytest.mark.parametrize(("parents", "token", "parent"), BAD_PARENTS)
def test_a_parent_that_is_no_earlier_token(
    runner: Callable[[Graph], Run], parents: tuple[int, ...], token: int, parent: int
) -> None:
    message = f"the token {token} cannot have the parent {parent}"
    run = runner(_tree_attention())
    run(normal(3, 1, 4), normal(1, 6, 4), i32(0, 0, 0), i32(3, 3, 4), i32(-1, -1, 0))
    with pytest.raises(ExecutionError, match=message):
        run(normal(3, 1, 4), normal(1, 6, 4), *where(3, 0), i32(*parents))


def test_a_token_of_a_tree_that_does_not_stand_behind_its_parent(
    runner: Callable[[Graph], Run],
) -> None:
    with pytest.raises(ExecutionError, match="the token 1"):
        runner(_tree_attention())(normal(3, 1, 4), normal(1, 6, 4), *where(3, 0), i32(-1, -1, 0))


@pytest.mark.parametrize("sequence", [-1, 1, 2**31 - 1])
def test_a_sequence_that_does_not_exist(runner: Callable[[Graph], Run], sequence: int) -> None:
    with pytest.raises(ExecutionError, match=f"there is no sequence {sequence}"):
        runner(_cache_write())(normal(2, 1, 4), *where(2, 0, sequence))
    with pytest.raises(ExecutionError, match=f"there is no sequence {sequence}"):
        runner(_attention())(normal(2, 1, 4), normal(1, 6, 4), *where(2, 0, sequence))


@pytest.mark.parametrize(
    ("rows", "start", "row"),
    [((1, 1), 0, 1), ((2, 1), 0, 1), ((-1, 0), 0, -1), ((0, 6), 0, 6), ((0, 4), 2, 4)],
)
def test_rows_that_cannot_be_moved(
    runner: Callable[[Graph], Run], rows: tuple[int, int], start: int, row: int
) -> None:
    run = runner(_cache_move())
    run(i32(0, 5), *where(1, 0))
    with pytest.raises(ExecutionError, match=f"the row {row} cannot be moved"):
        run(i32(*rows), *where(1, start))


@pytest.mark.parametrize("start", [-1, 5, 2**31 - 1])
def test_rows_moved_past_the_end(runner: Callable[[Graph], Run], start: int) -> None:
    with pytest.raises(ExecutionError, match="do not fit in a context of 6"):
        runner(_cache_move())(i32(0, 1), *where(1, start))
