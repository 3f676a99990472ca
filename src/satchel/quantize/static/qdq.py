"""The reference's quantised run: every annotated value is rounded as soon as it is made."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.graph.ir import Graph, Node, Sym, Value, Weight
from satchel.graph.ops import find_op
from satchel.graph.reference import AfterNode, ReferenceInterpreter, WeightReader
from satchel.quantize.static.calibrate import Example
from satchel.quantize.static.encoding import ActivationEncoding
from satchel.quantize.static.heads import HeadSteps
from satchel.quantize.static.plan import LAYERS, IntegerPlan

Array = NDArray[Any]


def quantize_rows(weight: Array, bits: int = 8) -> tuple[Array, Array]:
    """Symmetric codes and one scale (float32) for each row of a weight ``[rows, …]``.

    >>> codes, scales = quantize_rows(np.array([[127.0, -63.5]], np.float32))
    >>> codes.tolist(), scales.tolist()
    ([[127, -64]], [1.0])
    """
    rows = weight.reshape(len(weight), -1).astype(np.float32)
    most = np.float32((1 << bits - 1) - 1)
    scales = np.abs(rows).max(axis=1) / most
    # A row of nothing has a step that its bias can be counted in.
    least = scales[scales > 0].min(initial=np.inf)
    nothing = least if np.isfinite(least) else np.float32(1)
    scales = np.where(scales == 0, nothing, scales).astype(np.float32)
    codes = np.clip(np.rint(rows / scales[:, None]), -most, most)
    return codes.astype(np.int8 if bits == 8 else np.int16).reshape(weight.shape), scales


def round_rows(weight: Array, bits: int = 8) -> Array:
    """What is left of a weight after its rows were quantised."""
    codes, scales = quantize_rows(weight, bits)
    shape = (len(weight), *(1 for _ in weight.shape[1:]))
    rounded: Array = codes.astype(np.float32) * scales.reshape(shape)
    return rounded


class QdqInterpreter:
    """Runs a float graph with its activations and the weights of its layers rounded.

    ``encodings`` are by value name; a value that has none stays as it is. ``rounded_weights``
    names the weights that are stored in 8 bits, one scale for each row.
    """

    def __init__(
        self,
        read_weight: WeightReader,
        encodings: Mapping[str, ActivationEncoding],
        rounded_weights: frozenset[str],
    ) -> None:
        def read(weight: Weight) -> Array:
            array = read_weight(weight)
            return round_rows(array) if weight.name in rounded_weights else array

        self._interpreter = ReferenceInterpreter(read)
        self._encodings = encodings

    def run(
        self, graph: Graph, inputs: Mapping[str, Array], after_node: AfterNode | None = None
    ) -> dict[str, Array]:
        """All outputs by name; ``after_node`` sees each node's rounded results."""
        given = {name: self._round(name, np.asarray(array)) for name, array in inputs.items()}

        def rounded(node: Node, results: list[Array]) -> list[Array]:
            kept = [
                self._round(v.name, array) for v, array in zip(node.outputs, results, strict=True)
            ]
            return after_node(node, kept) if after_node else kept

        return self._interpreter.run(graph, given, after_node=rounded)

    def _round(self, name: str, array: Array) -> Array:
        encoding = self._encodings.get(name)
        return encoding.round_trip(array) if encoding else array


class PlannedInterpreter:
    """Runs a float graph as its plan says: nodes that will run on codes read rounded numbers."""

    def __init__(self, read_weight: WeightReader, plan: IntegerPlan, graph: Graph) -> None:
        names = {
            node.inputs[1].name
            for node in graph.nodes
            if node.op in LAYERS and plan.runs_on_codes(node) and node.inputs[1] is not None
        }

        def read(weight: Weight) -> Array:
            array = read_weight(weight)
            return round_rows(array) if weight.name in names else array

        self._interpreter = ReferenceInterpreter(read)
        self._plan = plan
        self._graph = graph

    def run(
        self, inputs: Mapping[str, Array], after_node: AfterNode | None = None
    ) -> dict[str, Array]:
        seen: list[Array | None] = []  # by the attention that runs next

        def rounded(node: Node, arrays: list[Array | None]) -> list[Array | None]:
            nonlocal seen
            if not self._plan.runs_on_codes(node):
                return arrays
            if id(node) in self._plan.heads:
                seen = arrays
                return arrays
            return [
                array if array is None or value is None else self._round(value.name, array)
                for value, array in zip(node.inputs, arrays, strict=True)
            ]

        def attended(node: Node, results: list[Array]) -> list[Array]:
            steps = self._plan.heads.get(id(node))
            if steps is not None:
                results = [_attend(node, seen, steps)]
            elif self._plan.plain and self._plan.runs_on_codes(node):  # it gives codes
                results = [self._round(node.outputs[0].name, results[0])]
            return after_node(node, results) if after_node else results

        return self._interpreter.run(self._graph, inputs, rounded, attended)

    def _round(self, name: str, array: Array) -> Array:
        encoding = self._plan.encodings.get(name)
        return encoding.round_trip(array) if encoding else array


def _attend(node: Node, arrays: list[Array | None], steps: HeadSteps) -> Array:
    """An attention_qkv in 8 bits, its result in floats."""
    x, *others = arrays
    assert x is not None
    given = [steps.quantize(x), steps.scales, *others]
    (result,) = find_op("qattention_qkv").reference(given, node.attrs)  # type: ignore[arg-type]
    return result


@dataclass
class LayerNoise:
    """Signal-to-noise ratios in dB: of every layer's result by its weight's name, and of the
    output that has lost the most.

    Where the numbers decide how many results there are, as boxes of a detector, others may be
    found and in another order: the last layers before that stand for such outputs.
    """

    layers: dict[str, float] = field(default_factory=dict)
    outputs: float = 999.0


def measure_noise(
    graph: Graph, read_weight: WeightReader, plan: IntegerPlan, examples: Iterable[Example]
) -> LayerNoise:
    """What is left of the signal where nodes run as the plan says."""
    exact = ReferenceInterpreter(read_weight)
    rounded = PlannedInterpreter(read_weight, plan, graph)
    counted = {v.name for v in graph.outputs if _is_counted(graph, v)}
    powers: dict[str, list[float]] = {}
    outputs: dict[str, list[float]] = {}

    def add(total: list[float], signal: Array, noisy: Array) -> None:
        for place, power in enumerate(signal_to_noise(signal, noisy)):
            total[place] += power

    for example in examples:
        signals: dict[int, Array] = {}

        def keep(node: Node, results: list[Array], kept: dict[int, Array] = signals) -> list[Array]:
            if node.op in LAYERS:
                kept[id(node)] = results[0]
            return results

        def measure(
            node: Node, results: list[Array], kept: dict[int, Array] = signals
        ) -> list[Array]:
            weight = node.inputs[1] if node.op in LAYERS else None
            if weight is not None and not _is_counted(graph, node.outputs[0]):
                add(powers.setdefault(weight.name, [0.0, 0.0]), kept.pop(id(node)), results[0])
            return results

        wanted = exact.run(graph, example, after_node=keep)
        for name, array in rounded.run(example, measure).items():
            if array.dtype == np.float32 and name not in counted:
                add(outputs.setdefault(name, [0.0, 0.0]), wanted[name], array)
    layers = {name: decibels(*pair) for name, pair in powers.items()}
    if counted:
        before = _last_layers(graph, [v for v in graph.outputs if v.name in counted], powers)
        outputs |= {name: powers[name] for name in before}
    return LayerNoise(layers, worst_decibels(outputs.values()))


def _is_counted(graph: Graph, value: Value) -> bool:
    """Whether a run finds out how large it is: it has a size that no input has."""
    given = {d.name for v in graph.inputs for d in v.shape if isinstance(d, Sym)}
    return any(isinstance(d, Sym) and not set(d.bases) <= given for d in value.shape)


def _last_layers(graph: Graph, values: Sequence[Value], names: Collection[str]) -> set[str]:
    """Of the layers that have these weights, those that values are made of without another."""
    makers = {id(v): node for node in graph.nodes for v in node.outputs}
    found: set[str] = set()
    seen: set[int] = set()
    waiting = list(values)
    while waiting:
        node = makers.get(id(waiting.pop()))
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        weight = node.inputs[1] if node.op in LAYERS else None
        if weight is not None and weight.name in names:
            found.add(weight.name)
        else:
            waiting += [v for v in node.inputs if v is not None]
    return found


def layer_noise(
    graph: Graph, read_weight: WeightReader, plan: IntegerPlan, examples: Iterable[Example]
) -> dict[str, float]:
    """The signal-to-noise ratio (in dB) of every layer's result, by its weight's name."""
    return measure_noise(graph, read_weight, plan, examples).layers


def own_noise(
    graph: Graph,
    read_weight: WeightReader,
    encodings: Mapping[str, ActivationEncoding],
    example: Example,
    heads: Mapping[str, HeadSteps] | None = None,
) -> dict[str, float]:
    """The same of each layer alone: rounded weight and input, all before it exact. Attention that
    ``heads`` has steps for is there by the name of what it reads.
    """
    found: dict[str, float] = {}
    inputs: dict[int, list[Array | None]] = {}

    def keep(node: Node, arrays: list[Array | None]) -> list[Array | None]:
        inputs[id(node)] = arrays
        return arrays

    def measure(node: Node, results: list[Array]) -> list[Array]:
        arrays = inputs.pop(id(node))
        source, weight = (*node.inputs, None)[:2]
        encoding = encodings.get(source.name) if source is not None else None
        if node.op in LAYERS and weight is not None and weight.weight is not None and encoding:
            x, w = arrays[:2]
            assert x is not None and w is not None
            rounded = [encoding.round_trip(x), round_rows(w), *arrays[2:]]
            (noisy,) = find_op(node.op).reference(rounded, node.attrs)  # type: ignore[arg-type]
            found[weight.name] = decibels(*signal_to_noise(results[0], noisy))
        if node.op == "attention_qkv" and source is not None and heads and source.name in heads:
            noisy = _attend(node, arrays, heads[source.name])
            found[source.name] = decibels(*signal_to_noise(results[0], noisy))
        return results

    # One call reads each weight once, so none is kept.
    ReferenceInterpreter(read_weight, keeps_weights=False).run(graph, example, keep, measure)
    return found


def decibels(signal: float, noise: float) -> float:
    """
    >>> decibels(100.0, 1.0)
    20.0
    """
    if noise == 0:
        return 999.0
    return round(10 * float(np.log10(max(signal, 1e-30) / noise)), 2)


def worst_decibels(powers: Iterable[Sequence[float]]) -> float:
    """Of the output that has lost the most: large numbers must not hide what became of small ones.

    An output of zeros says nothing.

    >>> worst_decibels([(1e6, 1.0), (1.0, 0.1), (0.0, 0.0)])
    10.0
    """
    return min((decibels(signal, noise) for signal, noise in powers if signal), default=999.0)


def signal_to_noise(signal: Array, noisy: Array) -> tuple[float, float]:
    """The power of a signal and that of what differs from it, as sums of squares."""
    wide, other = signal.astype(np.float64), noisy.astype(np.float64)
    both = np.isfinite(wide) & np.isfinite(other)  # an infinity has no power that could be told
    return float((wide[both] ** 2).sum()), float(((other - wide)[both] ** 2).sum())
