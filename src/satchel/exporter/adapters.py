"""LoRA adapters at export: merged into the weights, or kept apart as branches of the graph.

An adapter that is kept apart has methods of its own, ``kv_forward@NAME``, which share all weights,
states and constants with those of the model and add the adapter's own small matrices.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from satchel.checkpoints.adapter import LoraAdapter, open_adapter
from satchel.checkpoints.base import Checkpoint
from satchel.checkpoints.overlay import beside, branch_names, merged
from satchel.errors import RecipeError
from satchel.graph.ir import Graph, Node, RowSource, TensorType, Value, Weight
from satchel.quantize.recipe import Recipe
from satchel.sources import CATALOG
from satchel.sources.catalog import HubSource

Branches = Mapping[str, tuple[str, str]]  # by the weight's tensor: the tensors a and b


@dataclass(frozen=True)
class Adapters:
    """The adapters of an export, checked against the checkpoint."""

    merged: Sequence[LoraAdapter] = ()
    apart: Mapping[str, LoraAdapter] = field(default_factory=dict)

    @staticmethod
    def open(
        lora: Sequence[str],
        apart: Mapping[str, str],
        checkpoint: Checkpoint,
        recipe: Recipe,
        source: str | os.PathLike[str],
    ) -> Adapters:
        if lora and recipe.keeps:
            raise RecipeError(
                "an adapter cannot be merged into weights that are kept as they are",
                "Keep it apart: --adapter NAME=FOLDER.",
            )
        found = Adapters(
            [open_adapter(folder) for folder in lora],
            {name: open_adapter(folder) for name, folder in apart.items()},
        )
        base = _repository(source)
        for adapter in [*found.merged, *found.apart.values()]:
            adapter.check_fits(checkpoint.tensors, base)
        return found

    def over(self, checkpoint: Checkpoint) -> Checkpoint:
        """The checkpoint with all of them."""
        for adapter in self.merged:
            checkpoint = merged(checkpoint, adapter)
        for name, adapter in self.apart.items():
            checkpoint = beside(checkpoint, adapter, name)
        return checkpoint

    def branches(self, name: str) -> Branches:
        return {weight: branch_names(name, weight) for weight in self.apart[name].parts}


def add_branches(graph: Graph, branches: Branches, checkpoint: Checkpoint) -> None:
    """Linear layers whose weight has a branch become ``weight(x) + b(a(x))``."""
    nodes: list[Node] = []
    values: dict[str, Value] = {}  # the weights a and b

    def stored(name: str, rows: RowSource, *shape: int) -> Value:
        weight = Weight(name, shape, "adapter", rows)
        return values.setdefault(name, Value(name, TensorType(shape), weight=weight))

    for layer in graph.nodes:
        nodes.append(layer)
        weight = layer.inputs[1].weight if layer.op == "linear" and layer.inputs[1] else None
        tensors = branches.get(weight.source.tensor) if weight else None
        x = layer.inputs[0]
        if weight is None or tensors is None or x is None:
            continue
        rank, width = checkpoint.tensors[tensors[0]].shape
        a = stored(tensors[0], RowSource(tensors[0]), rank, width)
        # Of a fused tensor's b, each layer takes its own rows.
        name = f"{tensors[1]}:{weight.name}" if weight.source.ranges else tensors[1]
        b = stored(name, replace(weight.source, tensor=tensors[1]), weight.shape[0], rank)
        out = layer.outputs[0]
        plain = Value(f"{out.name}.plain", out.type)
        low = Value(f"{out.name}.low", TensorType((*x.shape[:-1], rank)))
        high = Value(f"{out.name}.high", out.type)
        layer.outputs = [plain]
        nodes.append(Node("linear", [x, a], [low]))
        nodes.append(Node("linear", [low, b], [high]))
        nodes.append(Node("add", [plain, high], [out]))
    graph.nodes = nodes
    graph.check()


def _repository(source: str | os.PathLike[str]) -> str:
    """The hub repository that a model is known to come from, or nothing."""
    text = os.fspath(source)
    if Path(text).exists():
        return ""
    if text.startswith("hf:"):
        return text.removeprefix("hf:").split("@")[0]
    entry = CATALOG.get(text.lower())
    return entry.source.repo if entry and isinstance(entry.source, HubSource) else ""
