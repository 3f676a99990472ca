"""From a PyTorch module to a program file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

from satchel.backends import DEFAULT, find_target
from satchel.backends.target import Draft, ModuleGraph, Samples, Target
from satchel.errors import ConfigError
from satchel.exporter.checks import check_free_space
from satchel.exporter.compiled import write_compiled
from satchel.exporter.weights import WeightPacker
from satchel.files import refuse_existing
from satchel.graph.ir import Weight
from satchel.graph.passes import optimize
from satchel.machine import cores
from satchel.program.writer import ProgramWriter, encode_metadata
from satchel.quantize.encoding import Encoding
from satchel.quantize.recipe import Recipe, apply_recipe, store_steps
from satchel.quantize.static import make_observer
from satchel.quantize.static.module import calibration_examples
from satchel.sources.progress import Progress, silent
from satchel.torch.capture import capture
from satchel.torch.importer import import_program
from satchel.torch.weights import ArrayCheckpoint, take_weights

LEAST_SNR = 15.0


@dataclass(frozen=True)
class ModuleOptions:
    """What can be chosen when a module is exported."""

    recipe: str | None = None  # None: the target's
    target: str | Target = DEFAULT
    overrides: Mapping[str, str] = field(default_factory=dict)
    observer: str = "minmax"
    least_snr: float = LEAST_SNR  # int8: layers that 8 bits leave with less (dB) get more
    metadata: Mapping[str, Any] = field(default_factory=dict)  # goes into the file as it is

    def __post_init__(self) -> None:
        make_observer(self.observer)
        self.chip.check_module(self.recipe_name, bool(self.overrides))

    @cached_property
    def chip(self) -> Target:
        """The target that the program is made for."""
        return find_target(self.target)

    @property
    def recipe_name(self) -> str:
        """The recipe, or the target's usual one."""
        return self.recipe or self.chip.usual.module_recipe

    @property
    def needs_examples(self) -> bool:
        """Whether ranges are measured before anything is written."""
        return self.chip.needs_examples(self.recipe_name)


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
        self.options, chip = options, options.chip
        self.recipe = Recipe.named(
            chip.module_recipe(options.recipe_name), overrides=options.overrides
        )
        self.name = name or type(module).__name__.lower()
        self.progress = progress or silent
        program = capture(module, example_inputs, kwargs, dynamic_shapes)
        graph = optimize(import_program(program).graph, chip.module_passes)
        arrays = take_weights(graph)
        self.parameters = sum(int(p.numel()) for p in module.parameters())
        encodings = store_steps([graph], apply_recipe([graph], self.recipe), {})
        examples = calibration_examples(graph, calibration) if options.needs_examples else []
        samples = Samples(examples=examples, observer=options.observer, least_snr=options.least_snr)
        finished = chip.finish_module(
            ModuleGraph(graph, arrays, encodings, self.recipe, options.recipe_name, samples),
            self.progress,
        )
        self.noise, self.kept = dict(finished.noise), list(finished.kept_in_float)
        self.encodings = dict(finished.encodings)
        self.checkpoint = ArrayCheckpoint(finished.arrays, Path(self.name))
        placed = chip.place([finished.graph])
        self.graphs, self.placement = placed.graphs, placed.to_dict()
        self.writer = ProgramWriter(self.graphs, self.encodings)
        self.compilation = chip.prepare(
            Draft(
                self.graphs,
                (),
                self.encodings,
                {w.value.name: w.codes_size + w.scales_size for w in self.writer.weights},
                self.recipe,
                options.recipe_name,
                samples=samples,
            )
        )

    @property
    def default_output(self) -> Path:
        mixed = ["mixed"] if self.recipe.overrides else []
        target = self.options.chip.name.replace(":", "-")
        return Path("-".join([self.name, target, self.options.recipe_name, *mixed]) + ".satchel")

    def run(self, output: Path, overwrite: bool = False, threads: int = 0) -> Path:
        """Write the program. Nothing is left behind if it fails or is interrupted."""
        refuse_existing(output, overwrite)
        size = self.writer.file_size(len(encode_metadata(self._metadata({}))))
        check_free_space(output.absolute().parent, size * (3 if self.compilation else 1))
        if self.compilation:
            write_compiled(
                self.options.chip.name,
                self.compilation,
                lambda base: self._write(base, threads=threads),
                lambda files: ProgramWriter(self.graphs, self.encodings, b"", files),
                output,
                overwrite,
                self.progress,
            )
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
            "target": self.options.chip.name,
            "recipe": {
                "name": self.options.recipe_name,
                "overrides": overrides,
                "observer": self.options.observer if self.options.needs_examples else None,
                "description": ", ".join(
                    [self.options.recipe_name, *map(str, self.recipe.overrides)]
                ),
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
    recipe: str | None = None,
    target: str | Target = DEFAULT,
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

    ``target`` is the name of a chip, or a :class:`~satchel.backends.Target` with its own options;
    some take certain recipes only, and ``recipe`` is by default the target's usual one.

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
