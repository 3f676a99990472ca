"""The memory plan: values alive at the same time never overlap, and memory is used again."""

from __future__ import annotations

from hypothesis import given, settings

from satchel.graph.builder import GraphBuilder
from satchel.graph.ir import Graph, Sym, Value
from satchel.graph.memory_plan import ALIGNMENT, plan_memory, shared_storage
from satchel.graph.passes import optimize
from support.random_graphs import GraphSpec, graph_specs


def _lives(graph: Graph) -> dict[int, tuple[Value, int, int]]:
    """By id: a value that lies in the arena, when it is made and when it is last needed."""
    lives: dict[int, tuple[Value, int, int]] = {}
    for step, node in enumerate(graph.nodes):
        for value in node.inputs:
            if value is not None and id(value) in lives:
                lives[id(value)] = (value, lives[id(value)][1], step)
        for value in node.outputs:
            if value.state is None:
                lives[id(value)] = (value, step, step)
    for value in graph.outputs:
        lives[id(value)] = (value, lives[id(value)][1], len(graph.nodes))
    return lives


@given(spec=graph_specs(24))
@settings(max_examples=200)
def test_values_alive_together_never_overlap(spec: GraphSpec) -> None:
    graph = optimize(spec.build())
    plan, shared, lives = plan_memory(graph), shared_storage(graph), _lives(graph)
    assert set(plan.offsets) == set(lives)
    for value, _, _ in lives.values():
        offset = plan.offsets[id(value)]
        assert offset % ALIGNMENT == 0
        assert offset >= 0 and offset + value.type.max_bytes <= plan.size
    entries = list(lives.values())
    for i, (a, first_a, last_a) in enumerate(entries):
        for b, first_b, last_b in entries[i + 1 :]:
            one_storage = shared.get(id(a), a) is shared.get(id(b), b)
            if one_storage or first_a > last_b or first_b > last_a:
                continue
            start_a, start_b = plan.offsets[id(a)], plan.offsets[id(b)]
            apart = start_a + a.type.max_bytes <= start_b or start_b + b.type.max_bytes <= start_a
            assert apart, f"{a} and {b} overlap in\n{graph}"


@given(spec=graph_specs(24))
def test_what_shares_storage_holds_the_same(spec: GraphSpec) -> None:
    graph = optimize(spec.build())
    makers = {id(v): node for node in graph.nodes for v in node.outputs}
    for result, root in shared_storage(graph).items():
        value = makers[result].outputs[0]
        while makers[id(value)].op == "reshape" and value is not root:
            source = makers[id(value)].inputs[0]
            assert source is not None
            value = source
        assert value is root


def test_a_chain_takes_two_buffers() -> None:
    b = GraphBuilder("forward")
    x = b.input("x", (64, 64))
    for _ in range(10):
        x = b.relu(x)
    b.output(x)
    assert plan_memory(b.finish()).size == 2 * 64 * 64 * 4


def test_a_small_value_fits_in_the_gap_a_large_one_leaves() -> None:
    b = GraphBuilder("forward")
    large = b.relu(b.input("x", (1024,)))
    small = b.reduce_sum(large, axes=(0,), keepdims=1)
    b.output(b.relu(b.relu(small)))
    assert plan_memory(b.finish()).size <= 1024 * 4 + 2 * ALIGNMENT


def test_values_that_take_turns_have_the_same_middle() -> None:
    b = GraphBuilder("forward")
    x = b.exp(b.input("x", (8192,)))
    for size in (4096, 1024, 128):
        x = b.relu(b.slice(x, axis=0, start=0, stop=size))
    b.output(x)
    graph = b.finish()
    plan = plan_memory(graph)
    made = [value for node in graph.nodes for value in node.outputs]
    assert len(made) == 7
    assert len({plan.offsets[id(value)] + value.type.max_bytes // 2 for value in made}) == 2


def test_slots_that_would_cost_much_are_left_out() -> None:
    b = GraphBuilder("forward")
    x = b.input("x", (4096,))
    parts = [b.relu(b.slice(x, axis=0, start=0, stop=1024)) for _ in range(4)]
    whole = b.relu(b.concat(*parts, axis=0))
    b.output(b.reduce_sum(b.relu(whole), axes=(0,)))
    assert plan_memory(b.finish()).size <= 2 * 4096 * 4 + ALIGNMENT


def test_symbols_count_with_their_maximum() -> None:
    b = GraphBuilder("forward")
    b.output(b.relu(b.input("x", (Sym("S", 100), 16))))
    assert plan_memory(b.finish()).size == 100 * 16 * 4


def test_a_reshape_shares_its_inputs_memory() -> None:
    b = GraphBuilder("forward")
    x = b.relu(b.input("x", (6, 4)))
    first = b.reshape(x, shape=(24,))
    second = b.reshape(first, shape=(4, 6))
    b.output(b.neg(second))
    graph = b.finish()
    plan = plan_memory(graph)
    assert plan.offsets[id(x)] == plan.offsets[id(first)] == plan.offsets[id(second)]
    assert shared_storage(graph) == {id(first): x, id(second): x}


def test_memory_lives_as_long_as_a_reshape_of_it_is_read() -> None:
    b = GraphBuilder("forward")
    x = b.relu(b.input("x", (16,)))
    flat = b.reshape(x, shape=(4, 4))
    other = b.exp(b.input("y", (16,)))
    b.output(b.add(flat, b.reshape(other, shape=(4, 4))))
    plan = plan_memory(b.finish())
    assert plan.offsets[id(flat)] != plan.offsets[id(other)]


def test_inputs_and_outputs_are_not_shared_by_reshapes() -> None:
    b = GraphBuilder("forward")
    x = b.input("x", (6, 4))
    made = b.relu(x)
    b.output(b.reshape(x, shape=(24,)))
    b.output(made)
    b.output(b.reshape(made, shape=(24,)))
    graph = b.finish()
    assert shared_storage(graph) == {}
    assert len(set(plan_memory(graph).offsets.values())) == 3


def test_a_graph_of_nothing_but_states_needs_no_arena() -> None:
    assert plan_memory(Graph("empty")).size == 0
