"""Building and checking graphs."""

from __future__ import annotations

import doctest

import numpy as np
import pytest

from satchel.errors import GraphError
from satchel.graph import builder as builder_module
from satchel.graph.builder import GraphBuilder
from satchel.graph.ir import DType, Graph, Node, RowSource, Sym, TensorType, Value
from support.arrays import i32, normal

S = Sym("S", 8)


def test_the_example_in_the_documentation_runs() -> None:
    result = doctest.testmod(builder_module)
    assert result.attempted > 0 and result.failed == 0


def test_weights_are_asked_for_once() -> None:
    b = GraphBuilder("forward")
    x = b.input("x", (2, 4))
    first = b.weight("w", (4, 4))
    b.output(b.linear(b.linear(x, first), b.weight("w", (4, 4))))
    graph = b.finish()
    assert [w.name for w in graph.weights()] == ["w"]
    assert graph.weights()[0].source == RowSource("w")
    with pytest.raises(GraphError, match=r"the weight w is used as \(4, 4\) and as \(2, 4\)"):
        b.weight("w", (2, 4))


def test_states_are_asked_for_once() -> None:
    b = GraphBuilder("forward")
    state = b.state("cache", (1, 6, 4), DType.f32)
    assert b.state("cache", (1, 6, 4), DType.f32) is state
    assert b.graph.states == {"cache": TensorType((1, 6, 4))}
    with pytest.raises(GraphError, match="the state cache is used as"):
        b.state("cache", (1, 6, 4), DType.f16)


def test_equal_constants_are_one() -> None:
    b = GraphBuilder("forward")
    data = normal(3)
    first = b.constant("c", data)
    assert b.constant("d", data.copy()) is first
    assert b.constant("c", data + 1) is not first
    assert b.constant("c", data.reshape(1, 3)) is not first
    data[0] += 1  # the graph has its own copy
    assert first.constant is not None and first.constant[0] != data[0]


def test_a_constants_name_means_the_same_in_every_method() -> None:
    one, two = GraphBuilder("one"), GraphBuilder("two")
    two.constant("c", normal(2))
    assert one.constant("c", normal(3)).name == two.constant("c", normal(3)).name
    assert one.constant("c", normal(3)).name != two.constant("c", normal(2)).name


@pytest.mark.parametrize("shape", [(), (1,), (2, 3)])
def test_constants_keep_their_shape(shape: tuple[int, ...]) -> None:
    value = GraphBuilder("forward").constant("c", np.array(normal(*shape), order="F"))
    assert value.constant is not None
    assert value.shape == value.constant.shape == shape
    assert value.constant.flags.c_contiguous


def test_an_unknown_op_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no op 'convolve'"):
        GraphBuilder("forward").convolve()


def test_nodes_are_checked_as_they_are_added() -> None:
    b = GraphBuilder("forward")
    with pytest.raises(GraphError, match="do not broadcast"):
        b.add(b.input("x", (2,)), b.input("y", (3,)))
    assert b.graph.nodes == []


def test_a_graph_prints_as_text() -> None:
    b = GraphBuilder("forward")
    x = b.input("x", (S, 4))
    b.output(b.linear(x, b.weight("w", (3, 4)), None), "logits")
    assert str(b.finish()) == (
        "method forward(%x: f32[S≤8, 4])\n"
        "  %logits: f32[S≤8, 3] = linear(%x, %w, -)\n"
        "  return %logits"
    )


def test_symbols_come_in_the_order_of_first_use() -> None:
    b = GraphBuilder("forward")
    first = b.input("x", (Sym("B", 2), S))
    b.output(b.add(first, b.input("y", (S,))))
    assert b.finish().symbols() == [Sym("B", 2), S]


def test_a_type_knows_its_largest_size() -> None:
    assert TensorType((S, 3), DType.f16).max_bytes == 8 * 3 * 2
    assert TensorType((), DType.i64).max_bytes == 8


@pytest.mark.parametrize("maximum", [0, -1])
def test_a_symbol_needs_room(maximum: int) -> None:
    with pytest.raises(GraphError, match="a maximum of at least 1"):
        Sym("S", maximum)


def test_a_dimension_is_at_least_one() -> None:
    with pytest.raises(GraphError, match="a dimension below 0"):
        TensorType((3, -1))
    with pytest.raises(GraphError, match="a dimension below 1"):
        GraphBuilder("forward").input("x", (3, 0))


def _relu(x: Value, type: TensorType) -> Node:
    return Node("relu", [x], [Value("y", type)])


def test_check_finds_a_value_that_is_read_before_it_is_made() -> None:
    x = Value("x", TensorType((2,)))
    node = _relu(x, x.type)
    graph = Graph("forward", [], node.outputs, [node])
    with pytest.raises(GraphError, match="reads %x: f32.2. before it is made"):
        graph.check()
    graph.inputs = [x]
    graph.check()


def test_check_finds_a_wrong_type() -> None:
    x = Value("x", TensorType((2,)))
    node = _relu(x, TensorType((3,)))
    with pytest.raises(GraphError, match="should have the type"):
        Graph("forward", [x], node.outputs, [node]).check()


def test_check_finds_an_output_that_is_never_made() -> None:
    x = Value("x", TensorType((2,)))
    with pytest.raises(GraphError, match="the output %z: f32.2. is never made"):
        Graph("forward", [x], [Value("z", TensorType((2,)))]).check()
    with pytest.raises(GraphError, match="the output %x: f32.2. is never made"):
        Graph("forward", [x], [x]).check()


def test_check_finds_two_bounds_of_one_symbol() -> None:
    b = GraphBuilder("forward")
    b.input("x", (S,))
    b.output(b.relu(b.input("y", (Sym("S", 9),))))
    with pytest.raises(GraphError, match="the size S has two maxima"):
        b.finish()


def test_check_finds_two_inputs_of_one_name() -> None:
    b = GraphBuilder("forward")
    b.output(b.add(b.input("x", (2,)), b.input("x", (2,))))
    with pytest.raises(GraphError, match="have one name"):
        b.finish()


def test_check_finds_two_outputs_of_one_name() -> None:
    b = GraphBuilder("forward")
    x = b.input("x", (2,))
    b.output(b.relu(x), "y")
    b.output(b.neg(x), "y")
    with pytest.raises(GraphError, match="have one name"):
        b.finish()


def test_a_cache_must_be_a_state() -> None:
    b = GraphBuilder("forward")
    cache = b.input("cache", (1, 6, 4))
    at = b.constant("at", i32(0, 1))
    b.output(b.reshape(b.cache_write(cache, b.input("x", (2, 1, 4)), at, at), shape=(24,)))
    with pytest.raises(GraphError, match="must write to the state it reads"):
        b.finish()


def test_a_state_is_not_an_output() -> None:
    b = GraphBuilder("forward")
    at = b.constant("at", i32(0, 1))
    cache = b.state("cache", (1, 6, 4), DType.f32)
    b.output(b.cache_write(cache, b.input("x", (2, 1, 4)), at, at))
    with pytest.raises(GraphError, match="is a state"):
        b.finish()
