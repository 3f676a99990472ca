"""Random graphs for hypothesis: any list of steps gives a valid graph."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from satchel.graph.builder import GraphBuilder
from satchel.graph.ir import Graph, Sym, Value
from support.arrays import normal

S = Sym("S", 6)
WIDTH = 4

UNARY = ("tanh", "silu", "gelu_tanh", "relu", "neg", "sigmoid")
BINARY = ("add", "mul", "sub", "maximum")
OTHERS = ("reshape", "transpose", "softmax", "reduce_mean", "linear", "rms_norm", "slice", "concat")
STEPS = (*UNARY, *BINARY, *OTHERS, "constant", "gate")


@dataclass(frozen=True)
class GraphSpec:
    """What a graph is made from, so that it can be made twice."""

    steps: tuple[tuple[str, int, int], ...]  # op, and which earlier values it reads
    outputs: tuple[int, ...]

    def build(self) -> Graph:
        b = GraphBuilder("forward")
        x, y = b.input("x", (S, WIDTH)), b.input("y", (S, WIDTH))
        values = [x, y, b.constant("c", normal(1, WIDTH))]
        for op, first, second in self.steps:
            values.append(_step(b, op, values[first % len(values)], values[second % len(values)]))
        made = [v for node in b.graph.nodes for v in node.outputs]
        for index in dict.fromkeys(i % len(made) for i in self.outputs):
            b.output(made[index])
        return b.finish()


def _step(b: GraphBuilder, op: str, x: Value, y: Value) -> Value:
    """Values are [S, 4], [1, 4] or [S, 1]; what does not fit is replaced by something that does."""
    cols = x.shape[1]
    if op in UNARY:
        return b.node(op, x)
    if op in BINARY:
        return b.node(op, x, y)
    if op == "gate":
        return b.node("mul", b.silu(x), y)
    if op == "constant":
        return b.constant("c", normal(1, WIDTH, seed=len(b.graph.nodes)))
    if op == "reshape" and cols == WIDTH:
        return b.reshape(b.tanh(b.reshape(x, shape=(0, 2, 2))), shape=(0, 4))
    if op == "transpose":
        return b.transpose(b.neg(b.transpose(x, perm=(1, 0))), perm=(1, 0))
    if op == "reduce_mean":
        return b.reduce_mean(x, axes=(1,), keepdims=1)
    if op == "linear" and cols == WIDTH:
        return b.linear(x, b.weight("w", (WIDTH, WIDTH)))
    if op == "rms_norm" and cols == WIDTH:
        return b.rms_norm(x, b.weight("n", (WIDTH,), "vector"), eps=1e-3)
    if op == "slice" and cols == WIDTH:
        return b.slice(x, axis=1, start=1, stop=2)
    if op == "concat" and x.shape == y.shape and cols == WIDTH:
        return b.slice(b.concat(x, y, axis=1), axis=1, start=2, stop=2 + WIDTH)
    return b.softmax(x)


WEIGHTS = {"w": normal(WIDTH, WIDTH, seed="w"), "n": normal(WIDTH, seed="n")}


def inputs_for(rows: int) -> dict[str, np.ndarray]:
    return {"x": normal(rows, WIDTH, seed="x"), "y": normal(rows, WIDTH, seed="y")}


def graph_specs(most_steps: int = 14) -> st.SearchStrategy[GraphSpec]:
    index = st.integers(0, 40)
    step = st.tuples(st.sampled_from(STEPS), index, index)
    # The first step makes a node, so that there is something to return.
    first = st.tuples(st.sampled_from(UNARY), index, index)
    steps = st.tuples(first, st.lists(step, max_size=most_steps))
    return st.builds(
        lambda steps, outputs: GraphSpec((steps[0], *steps[1]), tuple(outputs)),
        steps,
        st.lists(index, min_size=1, max_size=4),
    )
