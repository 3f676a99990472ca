"""Language models in Core ML packages, run by the interpreter of ML programs in numpy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.backends import find_target
from satchel.backends.coreml.interpreter import PackageInterpreter
from satchel.exporter import ExportOptions, ModelExport, prepare_export
from satchel.graph.ir import Weight
from satchel.graph.reference import ReferenceInterpreter
from satchel.program.stored_graphs import read_graphs
from satchel.runtime.program import Program
from support.arrays import integers

Array = NDArray[Any]
CONTEXT, BLOCK = 40, 8
TOKENS = integers(24, below=258, seed="tokens")


def prepare(source: Path, target: str, recipe: str, **own: Any) -> ModelExport:
    options = {"recipe": recipe, "context": CONTEXT, "prefill_ar_len": BLOCK}
    return prepare_export(source, ExportOptions(target=find_target(target, **own), **options))


def both(job: ModelExport, folder: Path) -> tuple[Program, Path]:
    """The program on the way to the package, and the package: with the same weights."""
    folder.mkdir()
    portable, made = job.both_forms(folder, threads=2)
    return Program(portable, target="cpu"), made[".mlpackage"]


def reference(program: Program, numbers: Callable[[str], Array] | None = None) -> Array:
    """The logits of the program's weights, all in 16 bits; activations are not rounded."""
    graph = read_graphs(program)["kv_forward"]
    for node in graph.nodes:
        node.attrs.pop("activations", None)

    def read(weight: Weight) -> Array:
        if numbers is not None and "frequencies" not in weight.name:
            return numbers(weight.name)
        array = program.weight(weight.name)
        halves = array.dtype == np.float32 and "frequencies" not in weight.name
        return array.astype(np.float16).astype(np.float32) if halves else array

    run = ReferenceInterpreter(read).run
    rows = []
    for at, token in enumerate(TOKENS):
        given = {"tokens": [token], "position": [at], "sequence": [0]}
        arrays = {name: np.array(value, np.int32) for name, value in given.items()}
        rows.append(run(graph, arrays)["logits"][0])
    return np.stack(rows)


def with_states(package: Path) -> dict[int, Array]:
    """Logits by token: a short block and a whole one, then one by one."""
    model, found, at = PackageInterpreter(package), {}, 0
    for count in (5, BLOCK):
        tokens = np.zeros((1, BLOCK), np.int32)
        tokens[0, :count] = TOKENS[at : at + count]
        made = model.run("prefill", tokens=tokens, position=whole(at), last=whole(count - 1))
        at += count
        found[at - 1] = made["logits"][0]
    while at < len(TOKENS):
        made = model.run("kv", tokens=TOKENS[None, at : at + 1], position=whole(at))
        found[at] = made["logits"][0]
        at += 1
    return found


def without_states(package: Path) -> dict[int, Array]:
    """The same by a caller that keeps the caches."""
    model, found = PackageInterpreter(package), {}
    listed = {each.name: each.type.multiArrayType.shape for each in model.spec.description.input}
    caches = {n: np.zeros(shape, np.float32) for n, shape in listed.items() if "cache" in n}
    for at in range(len(TOKENS)):
        tokens = TOKENS[None, at : at + 1]
        made = model.run("main", tokens=tokens, position=whole(at), **caches)
        for name, cache in caches.items():
            cache[:, :, at : at + 1] = made[f"{name}_new"].astype(np.float16)
        found[at] = made["logits"][0]
    return found


def whole(number: int) -> Array:
    return np.array([number], np.int32)


def worst(found: dict[int, Array], wanted: Array) -> float:
    """The largest error, beside the largest logit."""
    apart = max(float(np.abs(row - wanted[at]).max()) for at, row in found.items())
    return apart / float(np.abs(wanted).max())
