"""Core ML as a target: packages for Apple's systems."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from satchel.backends.coreml.rules import (
    MODULE_RECIPES,
    SYSTEMS,
    UNITS,
    check_palettes,
    check_recipe,
    require_packages,
)
from satchel.backends.foreign import (
    ForeignTarget,
    require_all,
    require_fixed_floats,
    require_ops,
)
from satchel.backends.target import (
    BackendGroup,
    Compilation,
    Defaults,
    Draft,
    Extra,
    FileKind,
    Placement,
)
from satchel.errors import ConfigError, RecipeError
from satchel.graph.ir import Graph, Node
from satchel.options import SWITCH, option
from satchel.quantize.scale_form import ABOVE_ZERO

if TYPE_CHECKING:
    from satchel.runtime.program import Instance, Program

NEWEST = SYSTEMS[-1]


@dataclass(frozen=True)
class CoreMlTarget(ForeignTarget):
    """Apple's systems from one version on: ``coreml:iOS18``, which is also macOS 15."""

    system: str = NEWEST
    units: str = option(
        "all",
        "what it is laid out for: ane (the Neural Engine: channels first, layers as convolutions, "
        "a large head in parts), gpu, or all (all)",
        choices=UNITS,
    )

    palettes: bool = option(
        False,
        "weights of 4 bits that name one of 16 numbers, which 16 rows have for themselves; with "
        "--recipe fp16, from iOS 18 on",
        SWITCH,
    )
    kit: str | None = option(
        None,
        "also write what a runner or an app of your own needs: for a phone's NPU binaries and a "
        "script, for Core ML a Swift package",
        metavar="FOLDER",
    )

    family = "coreml"
    form = "coreml[:iOS16|iOS17|iOS18]"
    title = "Core ML"
    file = "a Core ML package"
    run_by = "Run the .mlpackage on an Apple device."
    writes = FileKind(".mlpackage", is_folder=True)
    scale_form = ABOVE_ZERO
    extra = Extra("coreml", "coremltools", "satchel export --target coreml")
    backend_group = BackendGroup(
        "coreml",
        chip="ios",
        usual_chip="18",
        chip_form="iOS{}",
        not_needed=("enable_state", "preserve_sdpa", "compute_units"),
        refused={"quantize": "the recipe decides: quantization.qmode"},
    )

    @classmethod
    def parse(cls, chip: str, options: Mapping[str, Any]) -> CoreMlTarget:
        known = {name.lower(): name for name in SYSTEMS}
        if chip and chip.lower() not in known:
            raise ConfigError(
                f"there is no target {'coreml:' + chip!r}",
                f"Systems: {', '.join(SYSTEMS)}; newer ones run what iOS18 does.",
            )
        return cls(system=known.get(chip.lower(), NEWEST), **options)

    @property
    def name(self) -> str:
        return f"coreml:{self.system}"

    @property
    def stateful(self) -> bool:
        """Whether the system has models with states, several functions, and weights in blocks."""
        return self.system == NEWEST

    def choices(self) -> Iterator[str]:
        if self.units != "all":
            yield self.units
        if self.palettes:
            yield "palettes"

    @property
    def usual(self) -> Defaults:
        recipe = "8da4w" if self.stateful else "16a8w"
        return Defaults(recipe, "fp16", prefill_ar_len=64, kv_bits=16, context=2048)

    def check_module(self, recipe: str, has_overrides: bool) -> None:
        if recipe not in MODULE_RECIPES or has_overrides:
            raise RecipeError(
                f"a module for Core ML has weights of 16 or 8 bits, not {recipe}",
                "Use --recipe fp16 or int8, without --override.",
            )

    def needs_examples(self, recipe: str) -> bool:
        return False  # activations are 16-bit floats

    def module_recipe(self, recipe: str) -> str:
        return "fp16"  # of which codes are made when the package is written

    def supports(self, node: Node) -> str | None:
        from satchel.backends.coreml.function import OPS
        from satchel.backends.coreml.image_function import IMAGE_OPS, why_not

        if node.op in OPS | IMAGE_OPS:
            return why_not(node)
        return f"{node.op} has no form in an ML program here"

    def place(self, graphs: Sequence[Graph]) -> Placement:
        require_packages()
        nodes = [node for graph in graphs for node in graph.nodes]
        require_all(self, nodes)
        return Placement(tuple(graphs), {self.family: len(nodes)})

    def prepare(self, draft: Draft) -> Compilation:
        check_recipe(draft, self.stateful)
        if self.kit:
            from satchel.backends.coreml.kit import check_kit

            check_kit(Path(self.kit), draft.is_language_model, self.stateful)
        from satchel.backends.coreml.export import CoreMlLanguageModel, CoreMlModule

        if draft.is_language_model:
            if self.palettes:
                check_palettes(draft, self.stateful)
            return CoreMlLanguageModel(draft, self.system, self.units, self.palettes)
        from satchel.backends.coreml.image_function import IMAGE_OPS

        require_fixed_floats(draft.graphs[0])
        require_ops(draft.graphs[0], IMAGE_OPS, self.file)
        return CoreMlModule(draft, self.system, self.units)

    def after_export(self, program: Program) -> None:
        if self.kit:
            from satchel.backends.coreml.kit import write_kit

            write_kit(program, Path(self.kit), self.units)

    @classmethod
    def open_written(cls, path: Path) -> Program:
        require_packages()
        from satchel.backends.coreml.running import PackageProgram

        return PackageProgram(path)

    def open_reference(self, program: Program) -> Instance:
        """A package's ML program in numpy; what is on its way to one, in our own reference."""
        from satchel.backends.coreml.running import PackageProgram, interpreted

        if isinstance(program, PackageProgram):
            return interpreted(program)
        return super().open_reference(program)

    def open(self, program: Program, threads: int = 0) -> Instance:
        from satchel.backends.coreml.running import PackageProgram, opened

        if isinstance(program, PackageProgram):
            return opened(program)
        return super().open(program, threads)
