"""From a draft to a Core ML package: what it will take, and writing it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from satchel.backends.coreml.constants import Constants
from satchel.backends.coreml.function import IOS, Form, FunctionWriter, cache_shapes
from satchel.backends.coreml.image_function import ImageFunctionWriter, Picture
from satchel.backends.coreml.package import Package, version_of
from satchel.backends.coreml.rules import SYSTEMS
from satchel.backends.coreml.running import ABOUT, FUNCTIONS, UNITS
from satchel.backends.target import Compiled, CompilePlan, Draft
from satchel.graph.ir import Graph, Sym
from satchel.runtime.program import Program
from satchel.sources.progress import Progress
from satchel.units import megabytes

PACKAGE, TOKENIZER = ".mlpackage", ".tokenizer.json"
MOST_ROWS = 16384  # of a layer on the Neural Engine
_MEMORY = 64 << 20  # blocks of weights on their way, and the scales of the largest


class CoreMlLanguageModel:
    """A language model's package, with its tokenizer beside it."""

    graphs: tuple[Graph, ...] = ()

    def __init__(self, draft: Draft, system: str, units: str, palettes: bool = False) -> None:
        self._draft, self._system, self._units = draft, system, units
        self._palettes = palettes
        self._package  # noqa: B018  (what has no form there is told now)

    @property
    def _stateful(self) -> bool:
        return self._system == SYSTEMS[-1]

    @property
    def notes(self) -> tuple[str, ...]:
        if self._stateful:
            return ()
        return (
            f"{self._system} has no states: caches are inputs, and new rows outputs, which the "
            "caller puts into them; --target coreml:iOS18 keeps them itself, and reads "
            "prompts in blocks.",
        )

    @cached_property
    def _package(self) -> Package:
        draft, ane = self._draft, self._units == "ane"
        form = Form(draft.context, IOS[self._system], self._stateful, ane, MOST_ROWS if ane else 0)
        constants = Constants(draft.encodings, self._stateful, palettes=self._palettes)
        named = {FUNCTIONS[graph.name]: graph for graph in draft.graphs}
        if not self._stateful or len(named) == 1:  # the name that a function alone has
            named = {"main": named["kv"]}
        functions = {
            name: FunctionWriter(graph, form, constants).write() for name, graph in named.items()
        }
        said = {
            ABOUT: json.dumps({**draft.about, "target": f"coreml:{self._system}"}),
            "com.satchel.recipe": draft.recipe.describe(),
            "com.satchel.context": str(draft.context),
            UNITS: self._units,
            "com.satchel.prefill": str(_tokens(draft)),
        }
        return Package(functions, constants.file, version_of(self._system), said)

    def plan(self) -> CompilePlan:
        graph = self._draft.graphs[0]
        caches = sum(
            2 * _product(shape) for shape in cache_shapes(graph, self._draft.context).values()
        )
        document: dict[str, Any] = {
            "file_size_bytes": self._package.size,
            "weight_bytes": self._package.blobs.size,
            "cache_bytes": caches,
            "system": self._system,
            "units": self._units,
            "functions": list(self._package.spec.mlProgram.functions),
        }
        line = (
            f"Core ML      functions {', '.join(document['functions'])} over the same weights, "
            f"{megabytes(caches)} of caches, for {self._system} and newer, laid out for "
            f"{self._units}"
        )
        files = PACKAGE, TOKENIZER
        return CompilePlan(self._package.size, _MEMORY, document, (line,), files)

    def compile(self, program: Program, folder: Path, progress: Progress) -> Compiled:
        label, total = f"Writing {self._draft.recipe_name} for Core ML", self._package.size
        path, tokenizer = folder / "model.mlpackage", folder / "tokenizer.json"
        self._package.write(path, program, lambda done: progress(label, done, total))
        progress(label, total, total)
        tokenizer.write_bytes(program.section("tokenizer"))
        return Compiled({PACKAGE: path, TOKENIZER: tokenizer}, self.plan().document)


def _tokens(draft: Draft) -> int:
    """The most that a call reads."""
    most = 1
    for graph in draft.graphs:
        count = graph.inputs[0].shape[0]
        most = max(most, count.maximum if isinstance(count, Sym) else count)
    return most


def _product(shape: tuple[int, ...]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


class CoreMlModule:
    """A module's package; a classifier of images takes pictures, and names what it sees."""

    graphs: tuple[Graph, ...] = ()
    notes: tuple[str, ...] = ()

    def __init__(self, draft: Draft, system: str, units: str) -> None:
        self._draft, self._system, self._units = draft, system, units
        self._package  # noqa: B018  (what has no form there is told now)

    @cached_property
    def _package(self) -> Package:
        draft, newest = self._draft, self._system == SYSTEMS[-1]
        constants = Constants(draft.encodings, newest, draft.recipe_name == "int8")
        vision: Mapping[str, Any] = draft.about.get("vision") or {}
        how = vision.get("preprocessing")
        picture = Picture(tuple(how["mean"]), tuple(how["std"])) if how else None
        classes = vision.get("classes") or ()
        writer = ImageFunctionWriter(
            draft.graphs[0], IOS[self._system], constants, picture, bool(classes)
        )
        said = {
            ABOUT: json.dumps({**draft.about, "target": f"coreml:{self._system}"}),
            "com.satchel.recipe": draft.recipe_name,
            UNITS: self._units,
        }
        version = version_of(self._system)
        return Package({"main": writer.write()}, constants.file, version, said, classes)

    def plan(self) -> CompilePlan:
        document: dict[str, Any] = {
            "file_size_bytes": self._package.size,
            "weight_bytes": self._package.blobs.size,
            "system": self._system,
            "units": self._units,
        }
        line = f"Core ML      for {self._system} and newer"
        return CompilePlan(self._package.size, _MEMORY, document, (line,))

    def compile(self, program: Program, folder: Path, progress: Progress) -> Compiled:
        path = folder / "model.mlpackage"
        self._package.write(path, program, lambda _: None)
        return Compiled({PACKAGE: path}, self.plan().document)
