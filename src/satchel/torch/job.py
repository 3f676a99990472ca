"""From a PyTorch module to a program file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from satchel.backends import cpu
from satchel.backends.qnn.chips import is_qnn
from satchel.errors import ConfigError
from satchel.exporter.checks import check_free_space
from satchel.exporter.weights import WeightPacker
from satchel.files import refuse_existing
from satchel.graph.ir import Weight
from satchel.graph.passes import FLOATS, IMPORTED, WRITTEN_OUT, optimize
from satchel.machine import cores
from satchel.program.writer import ProgramWriter, encode_metadata
from satchel.quantize.encoding import Encoding
from satchel.quantize.recipe import Recipe, apply_recipe, store_steps
from satchel.quantize.static import make_observer
from satchel.sources.progress import Progress, silent
from satchel.torch.capture import capture
from satchel.torch.importer import import_program
from satchel.torch.npu import NPU_RECIPES, NpuModule, check_npu
from satchel.torch.static_int8 import calibration_examples, quantize_static
from satchel.torch.weights import ArrayCheckpoint, take_weights

STATIC = "int8"
LEAST_SNR = 15.0


@dataclass(frozen=True)
class ModuleOptions:
    """What can be chosen when a module is exported."""

    recipe: str = "fp32"
    target: str = "cpu"
    overrides: Mapping[str, str] = field(default_factory=dict)
    observer: str = "minmax"
    least_snr: float = LEAST_SNR  # int8: layers that 8 bits leave with less (dB) stay in floats
    metadata: Mapping[str, Any] = field(default_factory=dict)  # goes into the file as it is

    def __post_init__(self) -> None:
        make_observer(self.observer)
        if is_qnn(self.target):
            check_npu(self.target, self.recipe, bool(self.overrides))
        elif self.target != "cpu":
            raise ConfigError(
                f"a module cannot be exported for {self.target!r}",
                "Use cpu, or a chip with an NPU such as qnn:SM8750.",
            )

    @property
    def needs_examples(self) -> bool:
        """Whether ranges are measured before anything is written."""
        return self.recipe == STATIC or (is_qnn(self.target) and self.recipe in NPU_RECIPES)


class ModuleExportJob:
    """A module that has become a graph and can be written."""

    def __init__(
        self,
        module: Any,
        example_inputs: Sequence[Any],
        options: ModuleOptions,
        *,
        name: str | None = None,
        kwargs: Mapping[str, Any] | None = None,
        dynamic_shapes: Any = None,
        calibration: Any = None,
        progress: Progress | None = None,
    ) -> None:
        self.options = options
        self.for_npu = is_qnn(options.target)
        self.is_static = options.recipe == STATIC and not self.for_npu
        # What does not run in integers stays in floats, or is what an override says; what an NPU
        # runs is stored in 16 bits, of which its codes are made.
        usual = "fp16" if self.for_npu else "fp32" if self.is_static else options.recipe
        self.recipe = Recipe.named(usual, overrides=options.overrides)
        self.name = name or type(module).__name__.lower()
        self.progress = progress or silent
        program = capture(module, example_inputs, kwargs, dynamic_shapes)
        passes = WRITTEN_OUT if self.for_npu else IMPORTED
        self.graph = optimize(import_program(program).graph, passes)
        arrays = take_weights(self.graph)
        self.parameters = sum(int(p.numel()) for p in module.parameters())
        self.noise: dict[str, float] = {}
        self.kept: list[str] = []
        encodings = apply_recipe([self.graph], self.recipe)
        self.encodings: dict[str, Encoding] = store_steps([self.graph], encodings, {})
        graphs, self.npu = [self.graph], None
        if self.for_npu:
            examples = calibration_examples(self.graph, calibration)
            self.npu = NpuModule(self.graph, options, examples, self.progress)
            graphs = self.npu.graphs
        elif self.is_static:
            self._quantize(arrays, calibration)
            graphs = [self.graph]
        else:
            optimize(self.graph, FLOATS)
        self.checkpoint = ArrayCheckpoint(arrays, Path(self.name))
        self.placement = self.npu.report if self.npu else cpu.place(graphs)
        self.writer = ProgramWriter(graphs, self.encodings)

    def _quantize(self, arrays: dict[str, Any], calibration: Any) -> None:
        """All layers that no override names run in integers."""
        examples = calibration_examples(self.graph, calibration)
        kept = {n for n in arrays for o in self.recipe.overrides if o.matches(n)}
        self.progress(f"Calibrating {self.name}", 0, len(examples))
        result = quantize_static(
            self.graph,
            lambda w: arrays[w.name],
            examples,
            self.options.observer,
            kept,
            self.options.least_snr,
        )
        self.progress(f"Calibrating {self.name}", len(examples), len(examples))
        self.graph, self.noise, self.kept = result.graph, result.noise, result.kept
        arrays |= result.codes
        self.encodings |= dict.fromkeys(result.codes, Encoding("matrix_i8"))

    @property
    def default_output(self) -> Path:
        mixed = ["mixed"] if self.recipe.overrides else []
        target = self.options.target.replace(":", "-")
        return Path("-".join([self.name, target, self.options.recipe, *mixed]) + ".satchel")

    def run(self, output: Path, overwrite: bool = False, threads: int = 0) -> Path:
        """Write the program. Nothing is left behind if it fails or is interrupted."""
        refuse_existing(output, overwrite)
        size = self.writer.file_size(len(encode_metadata(self._metadata({}))))
        check_free_space(output.absolute().parent, size * (3 if self.npu else 1))
        if self.npu:
            base = partial(self._write, threads=threads)
            self.npu.run(self.writer, output, overwrite, base)
        else:
            self._write(output, overwrite, threads)
        return output

    def _write(self, output: Path, overwrite: bool = False, threads: int = 0) -> None:
        packer = WeightPacker(self.checkpoint, threads or cores())
        total, done = self.writer.weights_size, 0

        def encode(weight: Weight, encoding: Encoding) -> Iterator[bytes | memoryview]:
            nonlocal done
            for block in packer.encode(weight, encoding):
                yield block
                done += len(block)
                self.progress(f"Packing {self.name}", done, total)

        def metadata() -> dict[str, Any]:
            return self._metadata({n: round(e.relative, 6) for n, e in packer.errors.items()})

        self.writer.write(output, encode, metadata, overwrite)
        self.progress(f"Packing {self.name}", total, total)

    def _metadata(self, weight_error: dict[str, float]) -> dict[str, Any]:
        overrides = {o.pattern: o.value for o in self.recipe.overrides}
        return {
            "satchel_version": version("satchel"),
            "kind": "module",
            "name": self.name,
            "architecture": "pytorch",
            "parameters": self.parameters,
            "target": self.options.target,
            "recipe": {
                "name": self.options.recipe,
                "overrides": overrides,
                "observer": self.options.observer if self.options.needs_examples else None,
                "description": ", ".join([self.options.recipe, *map(str, self.recipe.overrides)]),
            },
            "layer_snr_db": self.noise,
            "kept_in_float": self.kept,
            "in_16_bits": [],
            "placement": self.placement,
            "weight_error": weight_error,
            "provenance": {"format": "pytorch", "file": self.name},
            **self.options.metadata,
        }


def export_module(
    module: Any,
    example_inputs: Sequence[Any],
    output: str | Path | None = None,
    *,
    recipe: str = "fp32",
    target: str = "cpu",
    overrides: Mapping[str, str] | None = None,
    calibration: Any = None,
    observer: str = "minmax",
    least_snr: float = LEAST_SNR,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    name: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    threads: int = 0,
    progress: Progress | None = None,
) -> Path:
    """Export a ``torch.nn.Module``; ``example_inputs`` is a tuple as for ``torch.export.export``.

    Recipes: ``fp32``, ``fp16``, ``int8`` (static: ``calibration`` is a list of examples, each an
    input or a tuple of them; ``observer`` is ``minmax``, ``percentile`` or ``mse``; layers that 8
    bits alone leave with less than ``least_snr`` dB stay in floats, and are listed), and those of
    language models, of which ``8a8w`` is int8 with activations rounded as they come.
    ``overrides`` gives some layers another one: ``{"features.0.*": "fp32"}``.

    ``target`` is ``cpu`` or a chip with an NPU, ``qnn:SM8750``: there ``int8`` and ``16a8w``
    (activations of 16 bits) are calibrated, all in integers.

    Returns the program's path, by default one that tells model, target and recipe.
    """
    if isinstance(example_inputs, (str, bytes)) or not isinstance(example_inputs, Sequence):
        raise ConfigError(
            "example_inputs must be a tuple of tensors", "Write satchel.export(module, (x,))."
        )
    options = ModuleOptions(recipe, target, overrides or {}, observer, least_snr, metadata or {})
    job = ModuleExportJob(
        module,
        example_inputs,
        options,
        name=name,
        kwargs=kwargs,
        dynamic_shapes=dynamic_shapes,
        calibration=calibration,
        progress=progress,
    )
    return job.run(Path(output) if output else job.default_output, overwrite, threads)
