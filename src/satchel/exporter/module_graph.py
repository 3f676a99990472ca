"""From the graph of a PyTorch module or of an ONNX model to what the pipeline takes on."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from satchel.backends.target import ModuleGraph, Samples
from satchel.encodings.encoding import Encoding
from satchel.exporter.module_options import ModuleOptions
from satchel.exporter.pipeline import Export, Portable
from satchel.graph.ir import Graph, Weight
from satchel.graph.passes import optimize
from satchel.program.about import AboutModule
from satchel.progress import Progress
from satchel.quantize.affine import CodedMatrix
from satchel.quantize.recipe import Recipe, apply_recipe, store_steps
from satchel.quantize.static.module import calibration_examples
from satchel.torch.weights import CODES, ArrayCheckpoint, keep_codes, take_weights


def prepare_graph_export(
    imported: Graph,
    options: ModuleOptions,
    *,
    name: str,
    parameters: int,
    source: str,
    calibration: Any,
    progress: Progress,
    tokenizer: bytes = b"",
    coded: Sequence[CodedMatrix] = (),
) -> Export:
    """An export of a graph whose weights are constants; ``source`` is where it comes from.

    ``coded`` are those that come quantised, for the recipe ``keep``.
    """
    chip = options.chip
    recipe = Recipe.named(chip.module_recipe(options.recipe_name), overrides=options.overrides)
    graph = optimize(imported, chip.module_passes)
    if recipe.keeps:
        keep_codes(graph, coded)
    arrays = take_weights(graph)
    kept = {w.name: _as_it_is(w) for w in graph.weights()} if recipe.keeps else {}
    encodings = store_steps([graph], apply_recipe([graph], recipe, kept), kept)
    codes = frozenset(name for name, encoding in kept.items() if encoding.is_quantized)
    examples = calibration_examples(graph, calibration) if options.needs_examples else []
    samples = Samples(examples=examples, observer=options.observer, least_snr=options.least_snr)
    finished = chip.finish_module(
        ModuleGraph(graph, arrays, encodings, recipe, options.recipe_name, samples), progress
    )
    # All that is said of it later: the arrays are not to be kept for that.
    noise, output_snr = finished.noise, finished.output_snr
    in_float = list(finished.kept_in_float)
    overrides = list(map(str, recipe.overrides))
    description = ", ".join([options.recipe_name, *overrides])
    more = dict(options.metadata)
    architecture = str(more.pop("architecture", source))
    portable = Portable(
        name=name,
        graphs=(finished.graph,),
        encodings=finished.encodings,
        checkpoint=ArrayCheckpoint(finished.arrays, Path(name), codes),
        pre_quantized=codes,
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
            layer_snr_db=noise,
            kept_in_float=in_float,
            output_snr_db=output_snr,
            weight_error={n: round(e.relative, 6) for n, e in errors.items()},
            provenance={"format": source, "file": name},
            more=more,
        ),
        samples=samples,
        tokenizer=tokenizer,
    )
    return Export.of(portable, options.targets, progress)


def _as_it_is(weight: Weight) -> Encoding:
    """Without rounding: codes with one scale for each row, floats in 32 bits."""
    if weight.name.split("#")[0].endswith(CODES):
        return Encoding("matrix_q8", weight.shape[1])
    return Encoding("matrix_f32")
