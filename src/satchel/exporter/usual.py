"""The recipe of an export that names none, by what the checkpoint is; and what a poor one costs."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from satchel.calibration.built_in import BUILT_IN
from satchel.checkpoints.base import Checkpoint
from satchel.exporter.options import ExportOptions
from satchel.exporter.prequantized import is_mostly_quantized
from satchel.quantize.recipe import Recipe
from satchel.remarks import remark

# Models with fewer parameters lose much to plain 4-bit weights; toys are small files anyway, and
# nothing like the built-in text.
SMALL, TOY = 1_000_000_000, 10_000_000
# A short text tells how strong the channels are, which is all that a search of scales asks for.
CAREFUL: dict[str, Any] = {
    "recipe": "8da4w",
    "calibrate": BUILT_IN,
    "rounding": "search",
    "embedding": (8, 0),
    "head_bits": 8,
}
CHOICES = (*CAREFUL, "preq_mode", "group_size", "overrides", "rotate")  # of how to round


def with_usual_recipe(options: ExportOptions, checkpoint: Checkpoint) -> ExportOptions:
    """The options with the recipe that is chosen when none is.

    What is quantised is kept, and small models are rounded with more care than large ones need.
    Whoever says how to round, or exports for a target that has one recipe for all, is taken at
    their word.
    """
    told = any(getattr(options, name) for name in CHOICES)
    if told or not _is_chosen_here(options):
        return options
    if checkpoint.quantized_by or is_mostly_quantized(checkpoint):
        return replace(options, recipe="keep")
    parameters = sum(prod(tensor.shape) for tensor in checkpoint.tensors.values())
    return replace(options, **CAREFUL) if is_small(parameters) else options


def is_small(parameters: int) -> bool:
    return TOY <= parameters < SMALL


def tell_cost(recipe: Recipe, rounding: str, options: ExportOptions, parameters: int) -> None:
    """What plain 4-bit weights cost a small model, and what would be better."""
    plain = recipe.name == "8da4w" and rounding == "plain" and not options.rotate
    if plain and is_small(parameters):
        better = "The default, without the option recipe, rounds"
        if not _is_chosen_here(options):  # there the default is plain
            better = "The options calibrate built-in and rounding search round"
        remark(
            f"Plain 8da4w costs a model of {parameters / 1e6:.0f}M parameters much: Gemma 3 270M's "
            f"perplexity goes from 36.7 to 65.8. {better} with more care, and calibrate with a "
            "text of your own with most."
        )


def _is_chosen_here(options: ExportOptions) -> bool:
    """Whether all targets leave the recipe to what the checkpoint is."""
    return all(target.usual.recipe_by_checkpoint for target in options.targets)
