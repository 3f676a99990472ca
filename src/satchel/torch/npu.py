"""The part of a module's export that is an NPU's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from satchel.backends.qnn.calibrate import Calibration
from satchel.backends.qnn.chips import find_chip
from satchel.backends.qnn.compiler import NpuCompiler
from satchel.backends.qnn.feeds import ExampleFeeds
from satchel.backends.qnn.lowering import lower
from satchel.backends.qnn.payload import named_files
from satchel.backends.qnn.place import METHOD, place_module
from satchel.backends.qnn.vendor import require_packages
from satchel.errors import RecipeError
from satchel.exporter.npu import write_compiled
from satchel.graph.ir import Graph
from satchel.program.writer import ProgramWriter
from satchel.runtime.program import Program
from satchel.sources.cache import partial_folder
from satchel.sources.progress import Progress

if TYPE_CHECKING:
    from satchel.torch.job import ModuleOptions

NPU_RECIPES = {"int8": 8, "16a8w": 16}  # the bits of activations; weights have 8


def check_npu(target: str, recipe: str, overrides: bool) -> None:
    """Refuse at once what no NPU can do."""
    find_chip(target)
    if recipe not in NPU_RECIPES:
        raise RecipeError(
            f"an NPU does not run a module as {recipe}",
            "Use --recipe int8, or 16a8w where 8 bits cost too much.",
        )
    if overrides:
        raise RecipeError(
            "on the NPU all layers of a module have one recipe",
            "Leave --override out; 16a8w gives all activations 16 bits.",
        )
    require_packages()


class NpuModule:
    """A module's graph divided between NPU and CPU, and what is needed to compile it."""

    def __init__(
        self,
        graph: Graph,
        options: ModuleOptions,
        examples: Sequence[Mapping[str, NDArray[Any]]],
        progress: Progress,
    ) -> None:
        placement = place_module(graph)
        self.graphs, self.report = placement.graphs, placement.report
        self._options, self._examples, self._progress = options, examples, progress
        self._bits = NPU_RECIPES[options.recipe]
        lower(placement.npu, self._bits, fuse_bias=True)  # what cannot be lowered is told at once

    def run(
        self,
        writer: ProgramWriter,
        output: Path,
        overwrite: bool,
        write_base: Callable[[Path], None],
    ) -> None:
        """Compile and write the program; ``write_base`` writes its usual form to a path."""
        with partial_folder(output.absolute().parent) as work:
            base = work / "base.satchel"
            write_base(base)
            program = Program(base)
            made = work / "npu"
            made.mkdir()
            options = self._options
            compiler = NpuCompiler(
                program,
                find_chip(options.target),
                {METHOD: 0},
                Calibration(self._bits, options.observer, options.least_snr),
                ExampleFeeds(METHOD, self._examples),
                progress=self._progress,
            )
            files = compiler.compile(made)
            whole = ProgramWriter(self.graphs, writer.encodings, b"", named_files(files))
            found = {
                "layer_snr_db": compiler.calibrated.noise,
                "in_16_bits": compiler.calibrated.wide,
            }
            write_compiled(program, whole, files, output, overwrite, found)
