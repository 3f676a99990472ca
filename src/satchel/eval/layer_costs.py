"""Which kinds of layers lose the most to quantisation.

Each kind of layer in turn is kept in float while all others stay quantised, and the perplexity
of the beginning of the text is measured again: what it falls by is what that kind costs. Kinds
are tried in the order of their weight error, as long as the time allows.
"""

from __future__ import annotations

import copy
import fnmatch
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from satchel.encodings.encoding import Encoding
from satchel.eval.perplexity import score_window
from satchel.eval.windows import Window
from satchel.exporter import ModelExport
from satchel.graph.ops import Trait, ops_with
from satchel.llm.session import Session
from satchel.runtime.program import Program

TOKENS = 1024
SECONDS = 300.0
_NAMED = 3


@dataclass(frozen=True)
class LayerCost:
    """``ppl`` is what the perplexity falls by with this kind in float; None: not measured."""

    kind: str
    weight_error: float
    ppl: float | None
    tokens: int = 0


def keep_in_float(export: ModelExport, kind: str) -> ModelExport:
    """The weights of one kind of layer stored as they are, and nothing rounded in front of them."""
    portable = export.portable
    encodings = {
        name: Encoding("matrix_f32")
        if encoding.is_matrix and fnmatch.fnmatchcase(name, kind)
        else encoding
        for name, encoding in portable.encodings.items()
    }
    graphs = copy.deepcopy(portable.graphs)
    layers = ops_with(Trait.rounds_input)
    for graph in graphs:
        for node in graph.nodes:
            weight = node.inputs[1].weight if node.op in layers and node.inputs[1] else None
            if weight is not None and fnmatch.fnmatchcase(weight.name, kind):
                node.attrs.pop("activations", None)
    return export.with_portable(replace(portable, graphs=graphs, encodings=encodings))


def layer_costs(
    program: Program,
    new_export: Callable[[], ModelExport],
    tokens: Sequence[int],
    windows_of: Callable[[Sequence[int]], list[Window]],
    folder: Path,
    threads: int = 0,
    told: Callable[[int, int], None] = lambda _done, _total: None,
) -> list[LayerCost]:
    """Every quantised kind of layer, the costliest first. Programs are written to ``folder``."""
    errors = program.about.weight_error
    ranked = sorted((k for k in errors if errors[k] > 0), key=lambda k: -errors[k])
    windows = windows_of(tokens[:TOKENS])
    counted = sum(w.counted for w in windows)
    deadline = time.monotonic() + SECONDS
    base = _perplexity(program, windows, threads)
    costs = []
    for number, kind in enumerate(ranked):
        told(number, len(ranked))
        gain = None
        if time.monotonic() < deadline:
            gain = base - _with_kind_in_float(new_export(), kind, windows, folder, threads)
        costs.append(LayerCost(kind, errors[kind], gain, counted))
    told(len(ranked), len(ranked))
    return sorted(costs, key=lambda c: (c.ppl is None, -(c.ppl or 0.0), -c.weight_error))


def _with_kind_in_float(
    export: ModelExport, kind: str, windows: Sequence[Window], folder: Path, threads: int
) -> float:
    floating = keep_in_float(export, kind)
    path = floating.run(folder / "one-kind.satchel", overwrite=True, threads=threads)
    try:
        return _perplexity(Program(path), windows, threads)
    finally:
        path.unlink()


def _perplexity(program: Program, windows: Sequence[Window], threads: int) -> float:
    session = Session(program, threads)
    total = math.fsum(score_window(session, w) for w in windows)
    return math.exp(total / sum(w.counted for w in windows))


def describe_costs(costs: Sequence[LayerCost]) -> str:
    """One sentence: which kinds did it, and how that was found.

    >>> describe_costs([LayerCost("mlp.down_proj", 0.09, 1.25, 1024)])
    'By kind of layer, its share (one kind in float at a time, 1024 tokens): mlp.down_proj 1.250.'
    """
    measured = [c for c in costs if c.ppl is not None and c.ppl > 0]
    if measured:
        shown = ", ".join(f"{c.kind} {c.ppl:.3f}" for c in measured[:_NAMED])
        how = f"one kind in float at a time, {measured[0].tokens} tokens"
        return f"By kind of layer, its share ({how}): {shown}."
    if costs:
        shown = ", ".join(f"{c.kind} {c.weight_error:.4f}" for c in costs[:_NAMED])
        return f"No kind of layer does it alone; the largest weight errors are {shown}."
    return "No layer is quantised, so it is the precision of the numbers."
