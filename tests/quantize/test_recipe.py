"""Recipes: what may be asked for, and which encoding each weight gets."""

from __future__ import annotations

from typing import Any

import pytest

from satchel.encodings.encoding import Encoding
from satchel.errors import RecipeError
from satchel.graph.builder import GraphBuilder
from satchel.graph.ir import DType, Graph, RowSource, Weight
from satchel.quantize.recipe import Recipe, apply_recipe


def _weight(cols: int, role: str = "linear") -> Weight:
    return Weight("w", (16, cols), role, RowSource("w"))


def _model(name: str, tied: bool) -> Graph:
    b = GraphBuilder(name)
    table = b.weight("embed", (40, 64), "embedding")
    x = b.embedding(b.input("ids", (3,), DType.i32), table)
    x = b.rms_norm(x, b.weight("norm", (64,), "vector"), eps=1e-5)
    x = b.linear(x, b.weight("layer", (64, 64)), b.weight("bias", (64,), "vector"))
    b.output(b.linear(x, table if tied else b.weight("head", (40, 64), "head")))
    return b.finish()


@pytest.mark.parametrize(
    ("arguments", "message", "advice"),
    [
        ({"name": "q4"}, "no recipe 'q4'", "fp32, fp16, keep, 16a8w, 8a8w, 16a4w, 8da4w"),
        ({"name": "8da4w", "group_size": 16}, "group size 16", "32, 64, 128, 256"),
        ({"name": "8da4w", "embedding": (2, 32)}, "embedding 2,32", "4 or 8 bits"),
        ({"name": "8da4w", "embedding": (4, 16)}, "embedding 4,16", "0 for a whole row"),
        ({"name": "8da4w", "head_bits": 6}, "4 or 8 bits, not 6", ""),
        ({"name": "fp16", "group_size": 32}, "fp16 does not quantise", ""),
        ({"name": "fp32", "embedding": (8, 0)}, "fp32 does not quantise", ""),
        ({"name": "fp32", "head_bits": 8}, "fp32 does not quantise", ""),
    ],
)
def test_what_is_refused(arguments: dict[str, Any], message: str, advice: str) -> None:
    with pytest.raises(RecipeError, match=message) as caught:
        Recipe.named(**arguments)
    assert advice in caught.value.advice


def test_defaults() -> None:
    recipe = Recipe.named("8da4w")
    assert (recipe.group_size, recipe.embedding, recipe.head_bits) == (32, (4, 32), 4)
    assert recipe.cache == DType.f16
    assert Recipe.named("8da4w", group_size=128).embedding == (4, 128)
    assert Recipe.named("fp32").cache == DType.f32
    assert Recipe.named("fp16").cache == DType.f16


@pytest.mark.parametrize(
    ("recipe", "role", "encoding"),
    [
        (Recipe.named("fp32"), "linear", Encoding("matrix_f32")),
        (Recipe.named("fp16"), "head", Encoding("matrix_f16")),
        (Recipe.named("fp16"), "vector", Encoding("f32")),
        (Recipe.named("8da4w"), "vector", Encoding("f32")),
        (Recipe.named("8da4w", 64), "linear", Encoding("matrix_q4", 64)),
        (Recipe.named("8da4w", embedding=(8, 32)), "embedding", Encoding("matrix_q8", 32)),
        (Recipe.named("8da4w", embedding=(4, 0)), "embedding", Encoding("matrix_q4", 192)),
        (Recipe.named("8da4w", 64, head_bits=8), "head", Encoding("matrix_q8", 64)),
    ],
)
def test_encodings_by_role(recipe: Recipe, role: str, encoding: Encoding) -> None:
    assert recipe.encoding(_weight(192, role), role) == encoding


@pytest.mark.parametrize(
    ("cols", "group", "advice"),
    [
        (192, 128, "Use 32 or 64 for this model."),
        (96, 64, "Use 32 for this model."),
        (40, 32, "Use fp16 or fp32 for this model."),
    ],
)
def test_a_group_must_divide_the_columns(cols: int, group: int, advice: str) -> None:
    with pytest.raises(RecipeError, match=f"{group} does not divide the {cols} columns of w") as e:
        Recipe.named("8da4w", group).encoding(_weight(cols), "linear")
    assert e.value.advice == advice


def test_a_whole_row_must_be_a_multiple_of_eight() -> None:
    with pytest.raises(RecipeError, match="44 columns"):
        Recipe.named("8da4w", embedding=(8, 0)).encoding(_weight(44), "embedding")


def test_untied_weights() -> None:
    graph = _model("forward", tied=False)
    encodings = apply_recipe([graph], Recipe.named("8da4w", 64, embedding=(8, 0), head_bits=8))
    assert encodings == {
        "embed": Encoding("matrix_q8", 64),
        "norm": Encoding("f32"),
        "layer": Encoding("matrix_q4", 64),
        "bias": Encoding("f32"),
        "head": Encoding("matrix_q8", 64),
    }
    marked = [node.attrs.get("activations") for node in graph.nodes if node.op == "linear"]
    assert marked == ["int8", "int8"]
    graph.check()


@pytest.mark.parametrize("name", ["fp32", "fp16"])
def test_floats_keep_their_activations(name: str) -> None:
    graph = _model("forward", tied=True)
    encodings = apply_recipe([graph], Recipe.named(name))
    assert set(encodings) == {"embed", "norm", "layer", "bias"}
    assert not any("activations" in node.attrs for node in graph.nodes)


def test_a_tied_head_of_the_same_encoding_stays_one() -> None:
    graph = _model("forward", tied=True)
    assert "embed#head" not in apply_recipe([graph], Recipe.named("8da4w"))
    assert graph.nodes[-1].attrs["activations"] == "int8"


def test_a_tied_head_of_another_encoding_becomes_a_weight_of_its_own() -> None:
    graphs = [_model("one", tied=True), _model("two", tied=True)]
    encodings = apply_recipe(graphs, Recipe.named("8da4w", head_bits=8))
    assert encodings["embed"] == Encoding("matrix_q4", 32)
    assert encodings["embed#head"] == Encoding("matrix_q8", 32)
    for graph in graphs:
        graph.check()
        weights = {w.name: w for w in graph.weights()}
        assert weights["embed#head"].source == weights["embed"].source == RowSource("embed")
        assert weights["embed#head"].role == "head"


def test_encodings_that_do_not_exist() -> None:
    with pytest.raises(ValueError, match="no encoding 'matrix_q2'"):
        Encoding("matrix_q2", 32)
