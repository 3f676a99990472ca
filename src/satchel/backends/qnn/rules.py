"""Whether a chip can run a recipe; if not, the error names one that it can."""

from __future__ import annotations

from collections.abc import Iterable

from satchel.backends.qnn.chips import Chip, usual_recipe
from satchel.backends.qnn.hadamard import hadamard_codes
from satchel.backends.qnn.halves import FLOATS
from satchel.backends.qnn.row_parts import RowPart
from satchel.backends.qnn.weights import fits_blocks
from satchel.encodings.encoding import Encoding
from satchel.errors import RecipeError
from satchel.graph.ir import DType, Graph, Weight
from satchel.quantize.recipe import KEEP, Recipe
from satchel.quantize.schemes import find_scheme

SCHEMES = ("16a4w", "16a8w", "8a8w", "fp16", "keep")
HALF = "fp16"


def check_recipe(chip: Chip, recipe: Recipe, encodings: dict[str, Encoding]) -> int:
    """The bits of the activations, or FLOATS; RecipeError if the chip cannot run the recipe."""
    advice = f"Use --recipe {usual_recipe(chip)}."
    if chip.has_block_weights:
        advice = "Use --recipe 16a4w, with --override PATTERN=16a8w for layers that need more."
    names = [recipe.name, *(override.scheme.name for override in recipe.overrides)]
    for name in names:
        if name == "fp32" and chip.has_floats:
            raise RecipeError("the NPU's floats have 16 bits, and not those of fp32", "Use fp16.")
        if name not in SCHEMES:
            raise RecipeError(f"the NPU does not run the recipe {name}", advice)
    if any(e.kind == "matrix_lpbq4" for e in encodings.values()) and not chip.has_block_weights:
        raise RecipeError(
            f"{chip.name} (Hexagon v{chip.hexagon}) has no 4-bit weights in blocks; v69 has",
            advice,
        )
    if HALF in names:
        check_floats(chip)
        if len(set(names)) > 1:
            raise RecipeError(
                "on the NPU a graph computes in 16-bit floats or in whole numbers, not in both",
                "Use --recipe fp16 for all layers, or --override PATTERN=16a8w.",
            )
        if recipe.cache != DType.f16:
            raise RecipeError("with fp16 the NPU's KV cache has 16 bits", "Leave --kv-bits out.")
        return FLOATS
    if recipe.keeps and recipe.activation_bits not in (None, 16):
        raise RecipeError(
            "on the NPU what is kept is multiplied by activations of 16 bits",
            "Use --recipe keep --activation-bits 16, without --preq-mode.",
        )
    if recipe.activation_bits and not recipe.keeps:
        raise RecipeError(
            "on the NPU a scheme's name tells the bits of activations: 16a4w has 16",
            "Leave --activation-bits out; --override PATTERN=8a8w gives some layers 8.",
        )
    width = activation_bits(recipe.name)
    _check_cache(chip, recipe, width)
    return width


def check_floats(chip: Chip) -> None:
    if not chip.has_floats:
        raise RecipeError(
            f"{chip.name} (Hexagon v{chip.hexagon}) has no 16-bit floats; v69 has",
            f"Use --recipe {usual_recipe(chip)}, or int8 for an image model.",
        )


def activation_bits(scheme: str) -> int:
    """Of what a layer of this scheme reads and makes; what is kept is multiplied by 16.

    >>> activation_bits("8a8w"), activation_bits("keep")
    (8, 16)
    """
    return 16 if scheme == KEEP else find_scheme(scheme).activation_bits


def layer_bits(recipe: Recipe, weights: Iterable[Weight]) -> dict[str, int]:
    """The bits of those layers, by their weights, that have a scheme of their own."""
    own = {weight.name: recipe.override_of(weight) for weight in weights}
    return {name: activation_bits(o.scheme.name) for name, o in own.items() if o is not None}


def cache_bits(recipe: Recipe) -> int:
    """Of the KV cache on the NPU; that of 16 is 16-bit floats on the CPU, and whole numbers there.

    >>> cache_bits(Recipe.named("16a4w", kv_bits=16))
    16
    """
    return 8 if recipe.cache == DType.u8 else 16


def _check_cache(chip: Chip, recipe: Recipe, bits: int) -> None:
    advice = "Use --kv-bits 8, or leave it out."
    if recipe.cache == DType.u8:
        return
    if recipe.cache != DType.f16:
        raise RecipeError("the NPU's KV cache has 8 or 16 bits", advice)
    if not chip.multiplies_16_by_16:
        raise RecipeError(
            f"{chip.name} (Hexagon v{chip.hexagon}) has a KV cache of 8 bits; v73 has 16", advice
        )
    if bits != 16:
        raise RecipeError("a KV cache of 16 bits goes with activations of 16", advice)


def check_matrices(
    graph: Graph, encodings: dict[str, Encoding], bits: int, keeps: bool = False
) -> list[str]:
    """Every layer must be stored in a form that the NPU computes with, or be a head that came with
    codes of other layers (``keeps``): those heads, by name, have floats and are rounded here."""
    heads: list[str] = []
    if bits == FLOATS:
        return heads
    for node in graph.nodes:
        weight = node.inputs[1].weight if node.op == "linear" and node.inputs[1] else None
        if weight is None or hadamard_codes(weight.name):
            continue
        encoding = encodings[RowPart.named(weight.name).weight]
        plain = encoding.kind in ("matrix_q4", "matrix_q8")
        fits = plain and fits_blocks(encoding.group, weight.shape[1])
        # An adaptor that came with the model is rounded here for the first time, to 8 bits.
        made = encoding.kind == "matrix_f16" and weight.role == "adapter"
        if keeps and encoding.kind == "matrix_f16" and weight.role in ("head", "embedding"):
            heads.append(RowPart.named(weight.name).weight)
            made = True
        if not fits and not made and encoding.kind != "matrix_lpbq4":
            raise RecipeError(
                f"the NPU does not compute with {weight.name} as {encoding}",
                "Use the recipe 16a4w, 16a8w or 8a8w; of what is kept, groups of 32, 64 or whole "
                "multiples of 64 without offsets can be.",
            )
    return sorted(set(heads))
