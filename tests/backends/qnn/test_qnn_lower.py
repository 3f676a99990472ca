"""The NPU's form of every architecture computes what the model's own graph does, in floats."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from models.model_rows import ROWS, ModelRow
from satchel.backends.qnn.lowering import Lowered, MaskInput, lower
from satchel.backends.qnn.ops import PLAIN_OPS
from satchel.backends.qnn.place import place_program
from satchel.backends.qnn.runner import visible_slots
from satchel.backends.qnn.shards import cut_points, split
from satchel.errors import ConfigError, GraphError
from satchel.graph.builder import GraphBuilder
from satchel.graph.ir import Graph, Sym, largest
from satchel.graph.reference import ReferenceInterpreter
from satchel.models import build_model
from support.arrays import integers, normal
from support.compare import assert_close
from support.tiny_models import BASE

CONTEXT = 48
BLOCK = 16


def _model(row: ModelRow) -> Any:
    transformers = pytest.importorskip("transformers")
    changes = {k: v for k, v in row.config.items() if k != "attn_implementation"}
    config = transformers.AutoConfig.for_model(row.model_type, **{**BASE, **changes})
    return build_model(config.to_dict())


class FloatRunner:
    """The lowered methods without any rounding."""

    def __init__(self, methods: list[Lowered], weights: dict[str, NDArray[Any]]) -> None:
        self.methods = {m.name: m for m in methods}
        self.interpreter = ReferenceInterpreter(lambda weight: weights[weight.name])
        self.caches: dict[str, NDArray[Any]] = {}

    def run(self, name: str, tokens: NDArray[Any], position: int) -> NDArray[Any]:
        method = self.methods[name]
        padded = np.zeros(method.tokens, np.int32)
        padded[: len(tokens)] = tokens
        given = {"tokens": padded, "position": np.arange(position, position + method.tokens)}
        values = self.interpreter.run(method.before, given)
        for mask in method.masks:
            seen = visible_slots(mask, method.tokens, method.context, position)
            values[mask.name] = np.where(seen, 0, -1e9).astype(np.float32)
        shapes = {v.name: largest(v.shape) for v in method.npu.inputs}
        for cache in method.caches:
            values[cache.name] = self.caches.setdefault(cache.name, normal(*shapes[cache.name]))
        points = cut_points(method.npu)
        for piece in split(method.npu, points[:: len(points) // 3 + 1]):
            values |= self.interpreter.run(piece, {v.name: values[v.name] for v in piece.inputs})
        for cache in method.caches:
            new = np.moveaxis(values[cache.new], cache.axis, 0)
            kept = np.moveaxis(self.caches[cache.name], cache.axis, 0)
            kept[position : position + len(tokens)] = new[: len(tokens)]
        return values["logits"][: len(tokens)]


EXPERTS = ("granitemoe", "mixtral", "olmoe", "qwen3_moe")  # which of them is known too late
WITH_EXPERTS = [row for row in ROWS if row.model_type in EXPERTS]
TAKEN = [row for row in ROWS if row not in WITH_EXPERTS]


@pytest.mark.parametrize("row", WITH_EXPERTS, ids=[row.id for row in WITH_EXPERTS])
def test_mixtures_of_experts_are_refused(row: ModelRow) -> None:
    method = _model(row).method("kv_forward", 1, CONTEXT)
    with pytest.raises(GraphError, match="no op .*Export this model for cpu"):
        lower(method, 16, 1, CONTEXT)
    with pytest.raises(ConfigError, match="mixtures of experts.*target cpu or vulkan"):
        place_program([method])


@pytest.mark.parametrize("row", TAKEN, ids=[row.id for row in TAKEN])
def test_lowered_methods_compute_the_same(row: ModelRow) -> None:
    model = _model(row)
    block = Sym("S", BLOCK)
    prefill = model.method("prefill_forward", block, CONTEXT)
    kv = model.method("kv_forward", 1, CONTEXT)
    weights = {
        w.name: normal(*w.shape, seed=w.name, scale=0.2) + (1 if len(w.shape) == 1 else 0)
        for w in prefill.weights()
    }
    own = ReferenceInterpreter(lambda weight: weights[weight.name])
    lowered = [lower(prefill, 16, BLOCK, CONTEXT), lower(kv, 16, 1, CONTEXT)]
    runner = FloatRunner(lowered, weights)
    tokens = integers(38, below=BASE["vocab_size"], seed=row.id)
    position = 0
    for graph, count in ((prefill, 16), (prefill, 9), (kv, 1), (prefill, 11), (kv, 1)):
        given = tokens[position : position + count]
        inputs: dict[str, Any] = {
            "tokens": given,
            "position": np.arange(position, position + count),
        }
        inputs["sequence"] = np.zeros(count)
        if graph is prefill:
            inputs["rows"] = np.arange(count)
        want = own.run(graph, inputs)["logits"]
        got = runner.run(graph.name, given, position)
        assert_close(got, want, 2e-4, f"{graph.name} at {position}")
        position += count
    for method in lowered:
        assert {node.op for node in method.npu.nodes} <= PLAIN_OPS
        assert all(isinstance(d, int) for v in method.npu.values() for d in v.shape)
    names = [[node.outputs[0].name for node in method.npu.nodes] for method in lowered]
    assert names[0] == names[1], "both methods use one set of encodings"


def test_an_op_that_the_npu_does_not_have() -> None:
    b = GraphBuilder("forward")
    x = b.input("tokens", (2, 3))
    b.output(b.sin(x))
    graph: Graph = b.finish()
    with pytest.raises(GraphError, match="the NPU backend has no op sin"):
        lower(graph, 16)


def test_mask_shows_what_a_query_may_see() -> None:
    """One by one: old slots before the block, new ones up to the query, none out of the window."""
    tokens, context, position = 3, 10, 4
    for window in (0, 3):
        seen = visible_slots(MaskInput("m", window), tokens, context, position)
        assert seen.shape == (tokens, context + tokens)
        for row in range(tokens):
            query = position + row
            for slot in range(context + tokens):
                at = slot if slot < context else position + slot - context
                exists = at < position if slot < context else at <= query
                near = not window or at > query - window
                assert seen[row, slot] == (exists and at <= query and near)
