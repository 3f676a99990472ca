"""The reference interpreter: what it checks, and how it keeps states."""

from __future__ import annotations

import weakref

import numpy as np
import pytest

from satchel.errors import ExecutionError
from satchel.graph.builder import GraphBuilder
from satchel.graph.ir import DType, Graph, Node, Sym, Weight
from satchel.graph.reference import ReferenceInterpreter
from support.arrays import i32, normal

S = Sym("S", 4)


def _no_weights(weight: Weight) -> np.ndarray:
    raise AssertionError(f"{weight.name} is not needed")


def _add() -> Graph:
    b = GraphBuilder("forward")
    b.output(b.add(b.input("x", (S, 2)), b.input("y", (S, 1))), "sum")
    return b.finish()


def test_a_missing_input_is_named() -> None:
    with pytest.raises(ExecutionError, match="the input 'y' is missing"):
        ReferenceInterpreter(_no_weights).run(_add(), {"x": normal(2, 2)})


@pytest.mark.parametrize(
    "y",
    [normal(2, 2), normal(5, 1), normal(3, 1), normal(2), normal(2, 1, 1)],
    ids=["wrong size", "above the bound", "another S", "rank below", "rank above"],
)
def test_a_wrong_shape_is_named(y: np.ndarray) -> None:
    with pytest.raises(ExecutionError, match=r"the input 'y' must be f32\[S≤4, 1\], not \["):
        ReferenceInterpreter(_no_weights).run(_add(), {"x": normal(2, 2), "y": y})


def test_an_empty_input_is_refused() -> None:
    empty = {"x": np.zeros((0, 2), np.float32), "y": np.zeros((0, 1), np.float32)}
    with pytest.raises(ExecutionError, match="the input 'x' must be"):
        ReferenceInterpreter(_no_weights).run(_add(), empty)


def test_weights_are_read_once() -> None:
    asked: list[str] = []

    def read(weight: Weight) -> np.ndarray:
        asked.append(weight.name)
        return normal(*weight.shape)

    b = GraphBuilder("forward")
    x = b.input("x", (3, 4))
    b.output(b.linear(b.linear(x, b.weight("w", (4, 4))), b.weight("w", (4, 4))))
    graph, interpreter = b.finish(), ReferenceInterpreter(read)
    interpreter.run(graph, {"x": normal(3, 4)})
    interpreter.run(graph, {"x": normal(3, 4)})
    assert asked == ["w"]


def _write(name: str, tokens: int) -> Graph:
    b = GraphBuilder(name)
    x, at = b.input("x", (tokens, 1, 2)), b.input("at", (tokens,), DType.i32)
    none = b.constant("none", np.zeros(tokens, np.int32))
    cache = b.cache_write(b.state("cache", (1, 4, 2), DType.f32), x, none, at)
    b.output(b.reshape(cache, shape=(4, 2)), "cache")
    return b.finish()


def test_states_outlive_calls_and_are_shared_by_methods() -> None:
    interpreter = ReferenceInterpreter(_no_weights)
    one, two = normal(2, 1, 2), normal(1, 1, 2)
    first = interpreter.run(_write("two", 2), {"x": one, "at": i32(0, 1)})["cache"]
    second = interpreter.run(_write("one", 1), {"x": two, "at": i32(2)})["cache"]
    zeros = np.zeros((1, 2), np.float32)
    np.testing.assert_array_equal(second, np.concatenate([one[:, 0], two[:, 0], zeros]))
    # What the first call returned has not been changed by the second.
    np.testing.assert_array_equal(first, np.concatenate([one[:, 0], zeros, zeros]))


def test_interpreters_do_not_share_states() -> None:
    ReferenceInterpreter(_no_weights).run(_write("w", 1), {"x": normal(1, 1, 2), "at": i32(0)})
    other = ReferenceInterpreter(_no_weights)
    got = other.run(_write("w", 1), {"x": np.zeros((1, 1, 2), np.float32), "at": i32(3)})
    assert not got["cache"].any()


def test_inputs_are_converted_and_left_alone() -> None:
    x = np.arange(4.0).reshape(2, 2)
    before = x.copy()
    out = ReferenceInterpreter(_no_weights).run(_add(), {"x": x, "y": np.ones((2, 1))})["sum"]
    assert out.dtype == np.float32
    np.testing.assert_array_equal(out, before + 1)
    np.testing.assert_array_equal(x, before)


def test_what_nothing_reads_any_more_is_let_go() -> None:
    """A model's values would fill the memory otherwise."""
    b = GraphBuilder("forward")
    x = b.input("x", (8,))
    first = b.add(x, x)
    value = first
    for _ in range(6):
        value = b.add(value, x)
    b.output(b.add(value, first), "sum")
    made: list[weakref.ref[np.ndarray]] = []
    alive = []

    def after(_: Node, results: list[np.ndarray]) -> list[np.ndarray]:
        alive.append(sum(one() is not None for one in made))
        made.extend(map(weakref.ref, results))
        return results

    x_values = normal(8)
    out = ReferenceInterpreter(_no_weights).run(b.finish(), {"x": x_values}, after_node=after)
    assert np.allclose(out["sum"], 10 * x_values, atol=1e-5)
    assert max(alive) == 2  # the first, which is read at the end, and the one before
