"""Recipes: which precision goes where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from satchel.errors import RecipeError
from satchel.graph.ir import DType, Graph, Value, Weight
from satchel.quantize.encoding import Encoding

NAMES = ("fp32", "fp16", "8da4w")
GROUP_SIZES = (32, 64, 128, 256)


@dataclass(frozen=True)
class Recipe:
    """What becomes of the weights, the activations and the KV cache.

    ``8da4w`` is 4-bit weights in groups that share a scale, times activations that are rounded
    to 8 bits per token while running. ``embedding`` is (bits, group), group 0 being a whole
    row; ``head_bits`` is 4 or 8.

    >>> Recipe.named("8da4w", group_size=64).describe()
    '8da4w, group size 64, embedding 4,64, head 4 bits, KV cache f16'
    """

    name: str
    group_size: int = 0
    embedding: tuple[int, int] | None = None
    head_bits: int | None = None
    cache: DType = DType.f16

    @staticmethod
    def named(
        name: str,
        group_size: int | None = None,
        embedding: tuple[int, int] | None = None,
        head_bits: int | None = None,
    ) -> Recipe:
        """The recipe of that name, with what is not given at its default."""
        if name not in NAMES:
            raise RecipeError(f"there is no recipe {name!r}", f"Recipes: {', '.join(NAMES)}.")
        if name != "8da4w":
            if group_size or embedding or head_bits:
                raise RecipeError(
                    f"{name} does not quantise, so it takes no group size, embedding or head bits"
                )
            return Recipe(name, cache=DType.f32 if name == "fp32" else DType.f16)
        group_size = group_size or 32
        if group_size not in GROUP_SIZES:
            allowed = ", ".join(map(str, GROUP_SIZES))
            raise RecipeError(f"the group size {group_size} is not supported", f"Use {allowed}.")
        embedding = embedding or (4, group_size)
        bits, group = embedding
        if bits not in (4, 8) or group not in (0, *GROUP_SIZES):
            raise RecipeError(
                f"the embedding {bits},{group} is not supported",
                "Use BITS,GROUP with 4 or 8 bits and a group of 32, 64, 128, 256, "
                "or 0 for a whole row.",
            )
        head_bits = head_bits or 4
        if head_bits not in (4, 8):
            raise RecipeError(f"the head can have 4 or 8 bits, not {head_bits}")
        return Recipe(name, group_size, embedding, head_bits)

    def describe(self) -> str:
        if self.embedding is None:
            return f"{self.name}, KV cache {self.cache.name}"
        bits, group = self.embedding
        return (
            f"{self.name}, group size {self.group_size}, embedding {bits},{group}, "
            f"head {self.head_bits} bits, KV cache {self.cache.name}"
        )

    def encoding(self, weight: Weight, role: str) -> Encoding:
        """How a weight is stored when it is used in this role."""
        if role == "vector":
            return Encoding("f32")
        if self.name != "8da4w":
            return Encoding("matrix_f32" if self.name == "fp32" else "matrix_f16")
        assert self.embedding and self.head_bits
        bits, group = {
            "embedding": self.embedding,
            "head": (self.head_bits, self.group_size),
        }.get(role, (4, self.group_size))
        cols = weight.shape[1]
        group = group or cols
        if cols % group or group % 8:
            fitting = [g for g in GROUP_SIZES if cols % g == 0]
            advice = f"Use {' or '.join(map(str, fitting))}" if fitting else "Use fp16 or fp32"
            raise RecipeError(
                f"the group size {group} does not divide the {cols} columns of {weight.name}",
                advice + " for this model.",
            )
        return Encoding(f"matrix_q{bits}", group)


def apply_recipe(graphs: Sequence[Graph], recipe: Recipe) -> dict[str, Encoding]:
    """Choose each weight's encoding and mark the linear layers that round their activations.

    A weight that is both embedding and head (tied) stays one if the recipe gives both the same
    encoding; otherwise the head becomes a weight of its own with the same source.
    """
    encodings: dict[str, Encoding] = {}
    for graph in graphs:
        heads: dict[str, Value] = {}
        for node in graph.nodes:
            for place, value in enumerate(node.inputs):
                if value is None or value.weight is None:
                    continue
                weight = value.weight
                is_tied_head = node.op == "linear" and weight.role == "embedding"
                encoding = recipe.encoding(weight, "head" if is_tied_head else weight.role)
                if is_tied_head and encoding != recipe.encoding(weight, "embedding"):
                    if weight.name not in heads:
                        copy = replace(weight, name=f"{weight.name}#head", role="head")
                        heads[weight.name] = Value(copy.name, value.type, weight=copy)
                    node.inputs[place] = heads[weight.name]
                    weight = heads[weight.name].weight or weight
                encodings[weight.name] = encoding
                if node.op == "linear" and encoding.is_quantized:
                    node.attrs["activations"] = "int8"
    return encodings
