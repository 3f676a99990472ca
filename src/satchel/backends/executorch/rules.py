"""What a .pte file can hold, checked before the work starts."""

from __future__ import annotations

from importlib.util import find_spec

from satchel.backends.target import Draft
from satchel.encodings.encoding import Encoding
from satchel.errors import ConfigError, RecipeError
from satchel.graph.ir import DType, Graph, Node, Weight

GROUP = 32  # a group of 4-bit weights has a multiple of so many
_RECIPES = "Use the recipe fp32, 8da4w, or 8a8w."


def require_packages() -> None:
    """Refuse where ExecuTorch is not installed."""
    if not _is_installed():
        raise ConfigError(
            "a .pte file is written with the package executorch, which is not installed",
            "pip install 'satchel[executorch]'.",
        )


def _is_installed() -> bool:
    try:
        return find_spec("executorch.exir") is not None
    except ModuleNotFoundError:
        return False


def check_recipe(draft: Draft) -> None:
    """Refuse what XNNPACK and ExecuTorch's kernels cannot compute with."""
    if draft.adapters:
        raise ConfigError(
            "a .pte file has no adapters that are kept apart", "Merge it with --lora."
        )
    if draft.recipe.keeps:
        raise RecipeError(
            "weights that come quantised have scales that XNNPACK does not take",
            "Use the recipe 8da4w, which rounds them again, or fp32.",
        )
    for graph in draft.graphs:
        for node in graph.nodes:
            if node.op == "linear":
                _check_layer(graph, node, draft)
    if draft.is_language_model and draft.recipe.cache != DType.f32:
        raise RecipeError(
            f"ExecuTorch's caches have 32 bits, not {draft.recipe.kv_bits}", "Use --kv-bits 32."
        )


def _check_layer(graph: Graph, node: Node, draft: Draft) -> None:
    weight = _weight_of(node)
    encoding = draft.encodings[weight.name]
    if not encoding.is_quantized:
        if encoding.kind != "matrix_f32":
            raise RecipeError(f"XNNPACK computes {weight.name} in 32 bits, not 16", _RECIPES)
        return
    if node.attrs.get("activations") != "int8":
        raise RecipeError(
            f"XNNPACK rounds what {weight.name} reads to 8 bits, and nothing else", _RECIPES
        )
    problem = _problem(encoding, weight.shape[1])
    if problem:
        raise RecipeError(f"{problem}, unlike {weight.name} as {encoding}", _RECIPES)


def _problem(encoding: Encoding, cols: int) -> str | None:
    if encoding.kind == "matrix_q4":
        return f"4-bit groups are of {GROUP}, 64, …" if encoding.group % GROUP else None
    if encoding.kind == "matrix_q8":
        whole = encoding.group == cols
        return None if whole else "8-bit weights have one scale a row (8a8w, or --head-bits 4)"
    return "XNNPACK takes 4-bit groups or 8-bit rows"


def _weight_of(node: Node) -> Weight:
    value = node.inputs[1]
    assert value is not None and value.weight is not None
    return value.weight
