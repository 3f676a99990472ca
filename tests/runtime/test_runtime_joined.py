"""Linear layers with one input are done together, with the same bits as each alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from satchel.graph.builder import GraphBuilder
from satchel.graph.ir import Graph, Sym
from satchel.quantize.encoding import Encoding
from satchel.runtime.program import load
from support.arrays import normal
from support.programs import write_program

COLS = 64
ROWS = {"q": 80, "k": 16, "v": 24, "other": 40, "rest": 33}
ENCODINGS = {
    "q": Encoding("matrix_q4", 32),
    "k": Encoding("matrix_q8", 32),
    "v": Encoding("matrix_q4", 32),
    "other": Encoding("matrix_q4", 16),  # another group: its input is quantised anew
    "rest": Encoding("matrix_lpbq4", 16),  # its results are multiplied with factors
}


def layers(name: str, *which: str) -> Graph:
    b = GraphBuilder(name)
    x = b.input("x", (Sym("S", 80), COLS))
    for weight in which:
        bias = b.weight(f"{weight}_bias", (ROWS[weight],)) if weight in "qv" else None
        w = b.weight(weight, (ROWS[weight], COLS))
        activation = "silu" if weight == "v" else "none"
        y = b.node("linear", x, w, bias, activations="int8", activation=activation)
        b.output(y, f"{weight}_out")
    return b.finish()


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("tokens", [1, 5, 80])
def test_together_as_alone(tmp_path: Path, tokens: int, threads: int) -> None:
    graphs = [layers("together", *ROWS), *(layers(f"only_{name}", name) for name in ROWS)]
    weights = {name: normal(rows, COLS, seed=i) for i, (name, rows) in enumerate(ROWS.items())}
    weights |= {f"{name}_bias": normal(ROWS[name]) for name in "qv"}
    program = load(write_program(tmp_path / "p.satchel", graphs, weights, ENCODINGS))
    instance = program.instance(threads)
    x = normal(tokens, COLS, seed=9)
    together = dict(
        zip((f"{n}_out" for n in ROWS), instance.method("together").run(x), strict=True)
    )
    for name in ROWS:
        alone = np.asarray(instance.method(f"only_{name}")(x))
        assert np.abs(alone).max() > 0
        np.testing.assert_array_equal(together[f"{name}_out"], alone)
