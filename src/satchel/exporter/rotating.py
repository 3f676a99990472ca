"""Rotations at export: weights are rotated as they are read; the graphs stay what they are."""

from __future__ import annotations

from collections.abc import Sequence

from satchel.checkpoints.base import Checkpoint
from satchel.errors import RecipeError
from satchel.graph.ir import Graph
from satchel.quantize.recipe import Recipe
from satchel.quantize.rotation import (
    RotatedCheckpoint,
    insert_rotations,
    plan_rotation,
    untie_head,
)


def rotate(
    graphs: Sequence[Graph],
    checkpoint: Checkpoint,
    recipe: Recipe,
    adapters_apart: bool,
    online: bool = False,
) -> RotatedCheckpoint:
    """The checkpoint rotated; the head of a tied model becomes a weight of its own.

    ``online`` adds the rotations that the graphs compute.
    """
    if recipe.keeps:
        raise RecipeError(
            "weights that are kept as they are cannot be rotated", "Choose another recipe."
        )
    if adapters_apart or checkpoint.branches:
        raise RecipeError(
            "a model with adapters that are kept apart cannot be rotated",
            "Merge them into the weights with --lora.",
        )
    for graph in graphs:
        untie_head(graph)
    plan = plan_rotation(graphs[0])
    if online:
        for graph in graphs:
            insert_rotations(graph, plan)
    return RotatedCheckpoint(checkpoint, plan)
