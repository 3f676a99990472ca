"""What the recipe ``keep`` takes from a checkpoint as it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from satchel.checkpoints.base import Checkpoint, TensorInfo
from satchel.encodings.encoding import Encoding
from satchel.errors import ConfigError, RecipeError
from satchel.exporter.options import ExportOptions
from satchel.graph.ir import DType, Graph, Node, TensorType, Value, constant_name
from satchel.quantize.recipe import Recipe
from satchel.remarks import remark


@dataclass(frozen=True)
class PrequantizedTensors:
    """The encodings, by tensor, that store a checkpoint's matrices as they are.

    ``forms`` counts the matrices by the type that the checkpoint has them in; those of ``rounded``
    have none that is exact, and are stored in 16 bits. ``orders`` has the order of the columns of
    tensors whose groups lie scattered.
    """

    encodings: Mapping[str, Encoding] = field(default_factory=dict)
    forms: Mapping[str, int] = field(default_factory=dict)
    rounded: Mapping[str, int] = field(default_factory=dict)
    orders: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    @staticmethod
    def of(checkpoint: Checkpoint, packed_bits: bool) -> PrequantizedTensors:
        """With ``packed_bits``, codes of 5 and 6 bits and K-quants' scales as they are."""
        matrices = {n: t for n, t in checkpoint.tensors.items() if len(t.shape) == 2}
        encodings = {
            name: t.own_encoding if packed_bits else t.own_encoding.plain
            for name, t in matrices.items()
            if t.own_encoding
        }
        if not any(encoding.is_quantized for encoding in encodings.values()):
            found = ", ".join(sorted({t.dtype for t in matrices.values()}))
            raise RecipeError(
                f"{checkpoint.path} has nothing quantised to keep: its weights are {found}",
                "Choose another recipe, for example 8da4w.",
            )
        return PrequantizedTensors(
            encodings,
            Counter(matrices[name].dtype for name in encodings),
            Counter(t.dtype for t in matrices.values() if t.own_encoding is None),
            {name: t.order for name, t in matrices.items() if t.order is not None},
        )

    def weights(self, graphs: Sequence[Graph], chosen: Mapping[str, Encoding]) -> frozenset[str]:
        """The weights whose codes come from the checkpoint, given the encodings chosen."""
        return frozenset(
            weight.name
            for graph in graphs
            for weight in graph.weights()
            if chosen[weight.name].is_quantized
            and chosen[weight.name] == self.encodings.get(weight.source.tensor)
        )

    def describe(self) -> str | None:
        """
        >>> PrequantizedTensors({}, {"q4_1": 210, "q8_0": 1}, {"q6_k": 2}).describe()
        '210 q4_1, 1 q8_0; in 16 bits: 2 q6_k'
        """
        parts = [_listed(self.forms)]
        if self.rounded:
            parts.append(f"in 16 bits: {_listed(self.rounded)}")
        return "; ".join(parts) if self.forms else None


def is_mostly_quantized(checkpoint: Checkpoint) -> bool:
    """Whether at least half of the matrices can be stored with the codes that they have."""
    matrices = [t for t in checkpoint.tensors.values() if len(t.shape) == 2]
    kept = [t for t in matrices if t.own_encoding is not None and t.own_encoding.is_quantized]
    return bool(kept) and 2 * len(kept) >= len(matrices)


def tell_second_rounding(checkpoint: Checkpoint, recipe: Recipe) -> None:
    """Rounding what was rounded before costs more than either, and nobody would see it."""
    if recipe.is_quantized and not recipe.keeps and is_mostly_quantized(checkpoint):
        forms = Counter(
            t.dtype
            for t in checkpoint.tensors.values()
            if t.own_encoding and t.own_encoding.is_quantized
        )
        remark(
            f"{checkpoint.path.name} is quantised already ({_listed(forms)}), and {recipe.name} "
            "rounds it once more: SmolLM2-135M's perplexity rose from 51 to 76 by that. The recipe "
            "keep, the default, stores its codes as they are."
        )


def check_prequantized(checkpoint: Checkpoint, recipe: Recipe) -> None:
    """Codes that someone took care to choose are not rounded again without being asked to."""
    method = checkpoint.quantized_by
    if method and recipe.is_quantized and not recipe.keeps:
        raise RecipeError(
            f"{checkpoint.path} is already quantised ({method}), and {recipe.name} would round it "
            "again",
            "Use --recipe keep, or fp16 for the numbers that its codes stand for.",
        )


def check_preq(checkpoint: Checkpoint, options: ExportOptions) -> None:
    """What the options say of a checkpoint that comes quantised must be so."""
    group, embedding = options.preq_group_size, options.preq_embedding
    if not (options.preq_mode or group or embedding or options.lora_rank):
        return
    if checkpoint.quantized_by != "8da4w":
        raise ConfigError(
            f"{checkpoint.path} is not a checkpoint of Meta's that comes quantised",
            "Leave out --preq-mode and what belongs to it, and choose a --recipe.",
        )
    tensors = checkpoint.tensors
    embedding_info = tensors["model.embed_tokens.weight"]
    layers = (
        t.own_encoding for name, t in tensors.items() if ".layers." in name and t.own_encoding
    )
    head = _form(tensors.get("lm_head.weight", embedding_info))
    ranks = (tensors[a].shape[0] for a, _ in checkpoint.branches.values())
    found = {
        "preq_mode": "8da4w_output_8da8w" if head == (8, 0) else "8da4w",
        "preq_group_size": next((e.group for e in layers if e.is_quantized), None),
        "preq_embedding": _form(embedding_info),
        "lora_rank": next(ranks, None),
    }
    for option, value in found.items():
        wanted = getattr(options, option)
        if wanted is not None and wanted != value:
            raise ConfigError(
                f"{option} is {wanted}, and {checkpoint.path} has {value or 'none'}",
                "Leave the option out, or take the checkpoint that it belongs to.",
            )


def _form(tensor: TensorInfo) -> tuple[int, int] | None:
    """Bits and group of a quantised matrix, 0 for a whole row."""
    if tensor.own_encoding is None or not tensor.own_encoding.is_quantized:
        return None
    group = 0 if tensor.own_encoding.group == tensor.shape[1] else tensor.own_encoding.group
    return (4 if tensor.own_encoding.kind.startswith("matrix_q4") else 8), group


def take_columns(graph: Graph, orders: Mapping[str, NDArray[Any]], weights: frozenset[str]) -> None:
    """Bring the inputs of linear layers to the order that the codes of their weights have."""
    nodes: list[Node] = []
    taken: dict[tuple[int, bytes], Value] = {}  # layers with one input often share the order
    for node in graph.nodes:
        weight = node.inputs[1].weight if node.op == "linear" and node.inputs[1] else None
        order = orders.get(weight.source.tensor) if weight and weight.name in weights else None
        x = node.inputs[0]
        if order is not None and x is not None:
            key = id(x), order.tobytes()
            if key not in taken:
                name, type = constant_name("columns", order), TensorType(order.shape, DType.i32)
                numbers = Value(name, type, constant=order)
                taken[key] = Value(f"{x.name}.ordered{len(taken)}", x.type)
                attrs = {"axis": len(x.shape) - 1}
                nodes.append(Node("take", [x, numbers], [taken[key]], dict(attrs)))
            node.inputs[0] = taken[key]
        nodes.append(node)
    graph.nodes = nodes
    graph.check()


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())
