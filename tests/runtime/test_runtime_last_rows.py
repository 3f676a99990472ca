"""What leads only to rows that are taken later is computed for those rows alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import ArrayLike

from satchel.encodings.encoding import Encoding
from satchel.errors import ExecutionError
from satchel.graph.builder import GraphBuilder
from satchel.graph.ir import DType, Graph, Sym, Value
from satchel.runtime.program import Instance, load
from support.arrays import normal
from support.programs import write_program

TOKENS, HEADS, DIM, CONTEXT = 200, 4, 16, 260
HIDDEN = HEADS * DIM


def last_layer(name: str, kept: bool, seen: bool) -> Graph:
    """A layer with attention; ``kept``: of all rows. ``seen``: the queries are also an output."""
    b = GraphBuilder(name)
    x = b.input("x", (Sym("S", TOKENS), HIDDEN))
    tokens = (Sym("S", TOKENS),)
    at = [b.input(name, tokens, DType.i32) for name in ("sequence", "position")]
    rows = b.input("rows", (Sym("L", TOKENS),), DType.i32)
    normed = b.node("rms_norm", x, b.weight("norm", (HIDDEN,)), eps=1e-6)
    weights = {n: b.weight(n, (HIDDEN, HIDDEN)) for n in ("q", "k", "v", "o", "up")}
    table = b.rope_table(at[1], b.constant("frequencies", normal(DIM // 2)))

    def linear(of: Value, weight: str) -> Value:
        return b.node("linear", of, weights[weight], activations="int8")

    def split(of: Value, *shape: int) -> Value:
        return b.node("reshape", of, shape=(0, *shape))

    flat = linear(normed, "q")
    q, k, v = (split(y, HEADS, DIM) for y in (flat, linear(normed, "k"), linear(normed, "v")))
    q, k = b.node("rope", q, table), b.node("rope", k, table)
    shape = (HEADS, CONTEXT, DIM)
    keys = b.cache_write(b.cache("cache.k", shape, DType.f16), k, *at)
    values = b.cache_write(b.cache("cache.v", shape, DType.f16), v, *at)
    out = split(b.attention(q, keys, values, *at, scale=0.3), HIDDEN)
    y = b.add(x, linear(out, "o"))
    y = b.add(y, b.node("silu", linear(y, "up")))
    b.output(y if kept else b.take_rows(y, rows), "y")
    if kept:
        b.output(b.take_rows(x, rows), "taken")
    if seen:
        b.output(b.affine(flat, scale=2.0, shift=0.0), "queries")
    return b.finish()


def seconds(instance: Instance, *inputs: ArrayLike) -> float:
    """The fastest of some calls, in linear layers."""
    found = []
    for _ in range(5):
        instance.start_profile()
        instance.method("last").run(*inputs)
        found.append(instance.take_profile()[0]["linear"][1])
    return min(found)


@pytest.mark.parametrize("tokens", [20, 40, TOKENS])
def test_wanted_rows_are_as_among_all(tmp_path: Path, tokens: int) -> None:
    graphs = [
        last_layer("all", True, True),
        last_layer("last", False, False),
        last_layer("seen", False, True),
    ]
    weights = {n: normal(HIDDEN, HIDDEN, seed=i) for i, n in enumerate(("q", "k", "v", "o", "up"))}
    encodings = {name: Encoding("matrix_q4", 16) for name in weights}
    weights["norm"] = normal(HIDDEN, seed=9)
    program = load(write_program(tmp_path / "p.satchel", graphs, weights, encodings))
    instance = program.instance(2)
    where = (np.zeros(tokens, np.int32), np.arange(7, 7 + tokens, dtype=np.int32))
    for step, wanted in enumerate(([tokens - 1], [tokens - 3, tokens - 9], [0, tokens - 1])):
        rows = np.array(wanted, np.int32)
        x = normal(tokens, HIDDEN, seed=step)
        whole, _, queries = instance.method("all").run(x, *where, rows)
        tolerance = 0 if tokens < 64 else 2e-5 * np.abs(whole).max()  # long blocks: another order
        (last,) = instance.method("last").run(x, *where, rows)
        np.testing.assert_allclose(last, whole[rows], rtol=0, atol=tolerance)
        some, same = instance.method("seen").run(x, *where, rows)
        np.testing.assert_allclose(some, whole[rows], rtol=0, atol=tolerance)
        np.testing.assert_array_equal(same, queries)  # which are wanted of all rows
    for wrong in (-1, tokens):
        with pytest.raises(ExecutionError, match="there is no row"):
            instance.method("last").run(x, *where, np.array([wrong], np.int32))
    with pytest.raises(ExecutionError, match="do not fit"):
        instance.method("last").run(x, where[0], where[1] + CONTEXT, rows)
    if tokens == TOKENS:
        one, most = (np.array([row], np.int32) for row in (tokens - 1, 0))
        assert seconds(instance, x, *where, one) < 0.8 * seconds(instance, x, *where, most)
