"""Passes: what each rewrites, what it must leave alone, and that results stay the same."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import satchel
from satchel.graph import passes
from satchel.graph.builder import GraphBuilder
from satchel.graph.ir import DType, Graph
from satchel.graph.reference import ReferenceInterpreter
from support.arrays import i32, normal
from support.compare import assert_close
from support.programs import write_program
from support.random_graphs import WEIGHTS, GraphSpec, graph_specs, inputs_for


def _ops(graph: Graph) -> list[str]:
    graph.check()
    return [node.op for node in graph.nodes]


def test_dead_nodes_go() -> None:
    b = GraphBuilder("forward")
    x = b.input("x", (3,))
    b.exp(b.neg(x))
    b.output(b.relu(x))
    passes.remove_dead_nodes(b.graph)
    assert _ops(b.graph) == ["relu"]


def test_writes_to_a_state_are_never_dead() -> None:
    b = GraphBuilder("forward")
    x = b.input("x", (1, 1, 4))
    b.cache_write(b.state("cache", (1, 6, 4), DType.f32), b.neg(x), b.constant("s", i32(0)))
    b.output(b.relu(x))
    passes.remove_dead_nodes(b.graph)
    assert _ops(b.graph) == ["neg", "cache_write", "relu"]


def test_constants_are_folded() -> None:
    b = GraphBuilder("forward")
    data = normal(3)
    folded = b.neg(b.exp(b.constant("c", data)))
    b.output(b.add(b.input("x", (3,)), folded))
    passes.fold_constants(b.graph)
    assert _ops(b.graph) == ["add"]
    assert folded.constant is not None
    np.testing.assert_allclose(folded.constant, -np.exp(data), rtol=1e-6)


def test_folding_keeps_shapes_without_dimensions() -> None:
    b = GraphBuilder("forward")
    folded = b.add(b.constant("c", normal()), b.constant("d", normal(seed=1)))
    b.output(b.add(b.input("x", (3,)), folded))
    passes.fold_constants(b.graph)
    assert folded.constant is not None and folded.constant.shape == ()


def test_folding_leaves_weights_and_outputs_alone() -> None:
    b = GraphBuilder("forward")
    c = b.constant("c", normal(2, 4))
    b.output(b.relu(c))
    b.output(b.neg(b.linear(c, b.weight("w", (4, 4)))))
    passes.fold_constants(b.graph)
    assert _ops(b.graph) == ["relu", "linear", "neg"]


def test_folded_constants_of_two_methods_do_not_mix(tmp_path: Path) -> None:
    """Both have a value neg_0, and in one program each must find its own."""
    graphs = []
    for name, data in (("one", normal(3)), ("two", normal(3, seed=2))):
        b = GraphBuilder(name)
        b.output(b.add(b.neg(b.constant("c", data)), b.input("x", (3,))))
        graphs.append(passes.optimize(b.finish()))
    program = satchel.load(write_program(tmp_path / "x.satchel", graphs))
    zeros = np.zeros(3, np.float32)
    np.testing.assert_array_equal(program.method("one")(zeros), -normal(3))
    np.testing.assert_array_equal(program.method("two")(zeros), -normal(3, seed=2))


def test_equal_nodes_are_merged() -> None:
    b = GraphBuilder("forward")
    x = b.input("x", (3,))
    b.output(b.mul(b.neg(b.exp(x)), b.neg(b.exp(x))))
    passes.merge_equal_nodes(b.graph)
    assert _ops(b.graph) == ["exp", "neg", "mul"]


def test_merging_looks_at_inputs_attributes_and_order() -> None:
    b = GraphBuilder("forward")
    x, y = b.input("x", (2, 2)), b.input("y", (2, 2))
    parts = [b.softmax(x, axis=0), b.softmax(x, axis=1), b.softmax(y, axis=0)]
    parts += [b.sub(x, y), b.sub(y, x)]
    b.output(b.concat(*parts, axis=0))
    passes.merge_equal_nodes(b.graph)
    assert len(b.graph.nodes) == 6


def test_outputs_are_not_merged_away() -> None:
    b = GraphBuilder("forward")
    x = b.input("x", (3,))
    b.output(b.neg(x), "first")
    b.output(b.neg(x), "second")
    passes.merge_equal_nodes(b.graph)
    assert _ops(b.graph) == ["neg", "neg"]


def test_what_reads_or_writes_a_state_is_not_merged() -> None:
    b = GraphBuilder("forward")
    x, start = b.input("x", (1, 1, 4)), b.constant("s", i32(0))
    cache = b.state("cache", (1, 6, 4), DType.f32)
    before = b.reshape(cache, shape=(24,))
    b.cache_write(cache, x, start)
    b.output(b.sub(b.reshape(cache, shape=(24,)), before))
    passes.merge_equal_nodes(b.graph)
    assert _ops(b.graph) == ["reshape", "cache_write", "reshape", "sub"]


@pytest.mark.parametrize(("gate", "fused"), [("silu", "silu_mul"), ("gelu_tanh", "gelu_tanh_mul")])
@pytest.mark.parametrize("swapped", [False, True])
def test_gates_are_fused(gate: str, fused: str, swapped: bool) -> None:
    b = GraphBuilder("forward")
    x, up = b.input("x", (3,)), b.input("up", (3,))
    activated = b.node(gate, x)
    b.output(b.mul(up, activated) if swapped else b.mul(activated, up))
    passes.fuse_gates(b.graph)
    assert _ops(b.graph) == [fused]
    assert b.graph.nodes[0].inputs == [x, up]


def test_a_gate_that_is_read_twice_is_not_fused() -> None:
    b = GraphBuilder("forward")
    x, up = b.input("x", (3,)), b.input("up", (3,))
    gate = b.silu(x)
    b.output(b.add(b.mul(gate, up), gate))
    passes.fuse_gates(b.graph)
    assert _ops(b.graph) == ["silu", "mul", "add"]


def test_a_gate_that_is_an_output_is_not_fused() -> None:
    b = GraphBuilder("forward")
    gate = b.silu(b.input("x", (3,)))
    b.output(gate)
    b.output(b.mul(gate, b.input("up", (3,))))
    passes.fuse_gates(b.graph)
    assert _ops(b.graph) == ["silu", "mul"]


def test_a_gate_that_is_broadcast_is_not_fused() -> None:
    b = GraphBuilder("forward")
    b.output(b.mul(b.silu(b.input("x", (1,))), b.input("up", (3,))))
    passes.fuse_gates(b.graph)
    assert _ops(b.graph) == ["silu", "mul"]


def test_a_squared_gate_is_not_fused() -> None:
    b = GraphBuilder("forward")
    gate = b.silu(b.input("x", (3,)))
    b.output(b.mul(gate, gate))
    passes.fuse_gates(b.graph)
    assert _ops(b.graph) == ["silu", "mul"]


def _run(graph: Graph, rows: int) -> list[np.ndarray]:
    outputs = ReferenceInterpreter(lambda w: WEIGHTS[w.name]).run(graph, inputs_for(rows))
    return list(outputs.values())


@given(spec=graph_specs(), rows=st.integers(1, 6))
@settings(max_examples=150)
def test_optimizing_does_not_change_results(spec: GraphSpec, rows: int) -> None:
    want = _run(spec.build(), rows)
    got = _run(passes.optimize(spec.build()), rows)
    for mine, theirs in zip(got, want, strict=True):
        assert_close(mine, theirs, 1e-6)


@given(spec=graph_specs(), rows=st.integers(1, 6))
@settings(max_examples=60)
def test_the_native_core_runs_any_graph(spec: GraphSpec, rows: int) -> None:
    """Whatever shares or reuses memory must not show in the results."""
    graph = passes.optimize(spec.build())
    needed = {w.name: WEIGHTS[w.name] for w in graph.weights()}
    with TemporaryDirectory() as folder:
        program = satchel.load(write_program(Path(folder) / "x.satchel", [graph], needed))
        inputs = [array for name, array in inputs_for(rows).items()]
        got = program.instance(threads=1).method("forward").run(*inputs)
    for mine, theirs in zip(got, _run(graph, rows), strict=True):
        assert_close(mine, theirs, 1e-4)
