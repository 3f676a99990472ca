"""What an ML program can hold, checked before the work starts."""

from __future__ import annotations

from importlib.util import find_spec

from satchel.backends.target import Draft
from satchel.errors import ConfigError, RecipeError
from satchel.graph.ir import DType

SYSTEMS = ("iOS16", "iOS17", "iOS18")
UNITS = ("all", "ane", "gpu")
MODULE_RECIPES = ("fp16", "int8")
_WEIGHTS = {"matrix_f16", "matrix_q4", "matrix_q8"}


def require_packages() -> None:
    """Refuse where coremltools is not installed."""
    if find_spec("coremltools") is None:
        raise ConfigError(
            "a Core ML package is written with coremltools, which is not installed",
            "pip install 'satchel[coreml]'.",
        )


def check_recipe(draft: Draft, stateful: bool) -> None:
    """Refuse what Core ML's weights cannot be."""
    if draft.adapters:
        raise ConfigError("a Core ML package has no adapters apart", "Merge it with --lora.")
    if draft.recipe.keeps:
        raise RecipeError(
            "weights that come quantised are not stored as they are for Core ML",
            "Use the recipe 8da4w, 16a8w or fp16, which round them again.",
        )
    for graph in draft.graphs:
        for weight in graph.weights():
            encoding = draft.encodings[weight.name]
            if encoding.is_matrix and encoding.kind not in _WEIGHTS:
                raise RecipeError(
                    f"Core ML has no form for {weight.name} as {encoding}",
                    "Use the recipe fp16, 16a8w or 8da4w.",
                )
            grouped = encoding.is_quantized and encoding.group != weight.shape[1]
            if not stateful and (grouped or encoding.kind == "matrix_q4"):
                raise RecipeError(
                    f"weights in groups, such as {weight.name}, need iOS 18",
                    "Use --target coreml:iOS18, or the recipe fp16 or 16a8w.",
                )
    if draft.is_language_model and draft.recipe.cache != DType.f16:
        raise RecipeError(
            f"Core ML's caches have 16 bits here, not {draft.recipe.kv_bits}", "Use --kv-bits 16."
        )


def check_palettes(draft: Draft, stateful: bool) -> None:
    """Refuse weights that no palettes can be made of."""
    if not stateful or draft.recipe_name != "fp16":
        raise RecipeError(
            f"palettes are made of 16-bit weights, for iOS 18, not of {draft.recipe_name}",
            "Use --target coreml:iOS18 --recipe fp16 with --palettes.",
        )
    for graph in draft.graphs:
        for weight in graph.weights():
            matrix = draft.encodings[weight.name].is_matrix
            if matrix and (weight.shape[0] % 16 or weight.shape[1] % 2):
                raise RecipeError(
                    f"{weight.name} has {weight.shape[0]} rows, and 16 share a palette",
                    "Leave --palettes out.",
                )
