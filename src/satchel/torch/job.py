"""From a PyTorch module to a program file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from satchel.backends import DEFAULT
from satchel.backends.target import ModuleGraph, Samples, Target
from satchel.errors import ConfigError
from satchel.exporter.module_options import LEAST_SNR, ModuleOptions
from satchel.exporter.pipeline import Export, Portable
from satchel.graph.passes import optimize
from satchel.program.about import AboutModule
from satchel.progress import Progress, usual_progress
from satchel.quantize.recipe import Recipe, apply_recipe, store_steps
from satchel.quantize.static.module import calibration_examples
from satchel.torch.capture import capture
from satchel.torch.importer import import_program
from satchel.torch.weights import ArrayCheckpoint, take_weights


def prepare_module_export(
    module: Any,
    example_inputs: Sequence[Any],
    options: ModuleOptions,
    *,
    name: str | None = None,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    calibration: Any = None,
    progress: Progress | None = None,
) -> Export:
    """A module's export, which has been checked and can be planned or run."""
    chip, told = options.chip, progress or usual_progress()
    recipe = Recipe.named(chip.module_recipe(options.recipe_name), overrides=options.overrides)
    name = name or type(module).__name__.lower()
    captured = capture(module, example_inputs, kwargs, dynamic_shapes)
    graph = optimize(import_program(captured).graph, chip.module_passes)
    arrays = take_weights(graph)
    encodings = store_steps([graph], apply_recipe([graph], recipe), {})
    examples = calibration_examples(graph, calibration) if options.needs_examples else []
    samples = Samples(examples=examples, observer=options.observer, least_snr=options.least_snr)
    finished = chip.finish_module(
        ModuleGraph(graph, arrays, encodings, recipe, options.recipe_name, samples), told
    )
    own = module.parameters() if hasattr(module, "parameters") else ()
    parameters = sum(int(p.numel()) for p in own)
    overrides = list(map(str, recipe.overrides))
    description = ", ".join([options.recipe_name, *overrides])
    more = dict(options.metadata)
    architecture = str(more.pop("architecture", "pytorch"))
    portable = Portable(
        name=name,
        graphs=(finished.graph,),
        encodings=finished.encodings,
        checkpoint=ArrayCheckpoint(finished.arrays, Path(name)),
        recipe=recipe,
        recipe_name=options.recipe_name,
        description=description,
        choices=("mixed",) if overrides else (),
        parameters=parameters,
        describe=lambda errors: AboutModule(
            satchel_version=version("satchel"),
            name=name,
            architecture=architecture,
            parameters=parameters,
            recipe={
                "name": options.recipe_name,
                "overrides": {o.pattern: o.value for o in recipe.overrides},
                "observer": options.observer if options.needs_examples else None,
                "description": description,
            },
            layer_snr_db=finished.noise,
            kept_in_float=list(finished.kept_in_float),
            output_snr_db=finished.output_snr,
            weight_error={n: round(e.relative, 6) for n, e in errors.items()},
            provenance={"format": "pytorch", "file": name},
            more=more,
        ),
        samples=samples,
    )
    return Export.of(portable, options.targets, told)


def export_module(
    module: Any,
    example_inputs: Sequence[Any],
    output: str | Path | None = None,
    *,
    recipe: str | None = None,
    target: str | Target | Sequence[str | Target] = DEFAULT,
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
    job = prepare_module_export(
        module,
        example_inputs,
        options,
        name=name,
        kwargs=kwargs,
        dynamic_shapes=dynamic_shapes,
        calibration=calibration,
        progress=progress,
    )
    return job.run(job.output(output), overwrite, threads)
