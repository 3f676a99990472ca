"""Where graphs are cut, and how large the pieces are."""

from __future__ import annotations

import itertools

import pytest

from satchel.backends.qnn.lowering import lower
from satchel.backends.qnn.shards import choose_cuts, cut_points, needed_shards, split
from satchel.backends.qnn.sizes import weight_bytes
from satchel.errors import ConfigError
from satchel.graph.ir import Graph
from satchel.models import build_model
from support.tiny_llm import CONFIG


@pytest.fixture(scope="module")
def graph() -> Graph:
    model = build_model(CONFIG | {"num_hidden_layers": 6})
    return lower(model.method("kv_forward", 1, 32), 16, 1, 32).npu


def _sizes(graph: Graph) -> dict[str, int]:
    return {w.name: 4 * w.shape[0] * w.shape[-1] for w in graph.weights() if len(w.shape) == 2}


@pytest.mark.parametrize("count", range(1, 8))
def test_pieces_are_even_and_whole(graph: Graph, count: int) -> None:
    size = weight_bytes(_sizes(graph))
    cuts = choose_cuts(graph, size, count)
    pieces = split(graph, cuts)
    assert len(pieces) == count and set(cuts) <= set(cut_points(graph))
    assert sum(len(piece.nodes) for piece in pieces) == len(graph.nodes)
    weights = [w.name for piece in pieces for w in piece.weights()]
    assert sorted(weights) == sorted(w.name for w in graph.weights())
    largest = max(sum(map(size, piece.nodes)) for piece in pieces)
    assert needed_shards(graph, size, largest) <= count
    if count > 1:
        with_less = needed_shards(graph, size, largest - 1)
        assert with_less >= count, "a smaller limit would have been enough"
    for before, after in itertools.pairwise(pieces):
        passed = {v.name for v in after.inputs} & {v.name for v in before.outputs}
        assert len(passed) == 1


def test_more_shards_than_places_to_cut(graph: Graph) -> None:
    with pytest.raises(ConfigError, match="shards at most, not 1000"):
        choose_cuts(graph, weight_bytes(_sizes(graph)), 1000)


def test_a_layer_above_the_limit_is_a_shard_of_its_own(graph: Graph) -> None:
    wanted = needed_shards(graph, weight_bytes(_sizes(graph)), 100)
    pieces = split(graph, choose_cuts(graph, weight_bytes(_sizes(graph)), wanted))
    assert len(pieces) == wanted <= len(cut_points(graph)) + 1
