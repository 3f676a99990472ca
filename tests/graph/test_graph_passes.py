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
from satchel.graph.ir import DType, Graph, Value
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
    x, zero = b.input("x", (1, 1, 4)), b.constant("s", i32(0))
    b.cache_write(b.state("cache", (1, 6, 4), DType.f32), b.neg(x), zero, zero)
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
    x, zero = b.input("x", (1, 1, 4)), b.constant("s", i32(0))
    cache = b.state("cache", (1, 6, 4), DType.f32)
    before = b.reshape(cache, shape=(24,))
    b.cache_write(cache, x, zero, zero)
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


def _image_layers(b: GraphBuilder, count: int, **attrs: int) -> list[Value]:
    x = b.input("x", (1, 5, 6, 8))
    weights = (
        b.constant(f"w{i}", normal(8, 8 // attrs.get("groups", 1), seed=i)) for i in range(count)
    )
    return [x, *(b.conv2d(x, weight, kernel=(1, 1), **attrs) for weight in weights)]


def test_a_sum_and_its_activation_go_into_the_later_convolution() -> None:
    b = GraphBuilder("forward")
    _, first, second = _image_layers(b, 2)
    b.output(b.relu(b.add(first, second)), "y")
    reference, inputs = ReferenceInterpreter(lambda w: WEIGHTS[w.name]), {"x": normal(1, 5, 6, 8)}
    before = reference.run(b.graph, inputs)["y"]
    passes.optimize(b.graph, passes.FLOATS)
    assert _ops(b.graph) == ["conv2d", "conv2d"]
    fused = b.graph.nodes[1]
    assert fused.inputs[3] is first and fused.attrs["activation"] == "relu"
    assert_close(reference.run(b.graph, inputs)["y"], before, 1e-6)


def test_a_convolution_that_takes_in_a_sum_runs_when_the_other_image_is_there() -> None:
    b = GraphBuilder("forward")
    x, layer = _image_layers(b, 1)
    b.output(b.add(layer, b.exp(x)))
    passes.optimize(b.graph, passes.FLOATS)
    assert _ops(b.graph) == ["exp", "conv2d"]


@pytest.mark.parametrize("case", ["read twice", "twice itself", "groups", "activated", "broadcast"])
def test_sums_that_a_convolution_does_not_take_in(case: str) -> None:
    b = GraphBuilder("forward")
    x, layer = _image_layers(b, 1, **({"groups": 2} if case == "groups" else {}))
    if case == "activated":
        b.graph.nodes[-1].attrs["activation"] = "relu"
    other = b.constant("c", normal(8)) if case == "broadcast" else x
    b.output(b.add(layer, layer if case == "twice itself" else other))
    if case == "read twice":
        b.output(b.exp(layer), "second")
    passes.optimize(b.graph, passes.FLOATS)
    assert "add" in _ops(b.graph)


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
