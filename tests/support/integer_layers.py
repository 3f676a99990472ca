"""Every node of an int8 program against the quantise-dequantise run, from the same codes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import satchel
from satchel.encodings.encoding import Encoding
from satchel.graph.ir import Graph, Node, Value
from satchel.graph.ops import find_op
from satchel.quantize.static import lower_integers, quantize_rows
from satchel.quantize.static.plan import LAYERS, IntegerPlan
from support.compare import relative_difference
from support.programs import write_program

Array = NDArray[Any]


@dataclass(frozen=True)
class NodeDifference:
    """``steps`` between codes, or what a float result is off by, relative to its largest number."""

    name: str
    op: str
    steps: int | None
    relative: float | None


class LayerComparison:
    """Runs an int8 program once, with all its values as outputs, and each node of its float graph
    on what the native core's codes stand for.
    """

    def __init__(
        self,
        graph: Graph,
        plan: IntegerPlan,
        weights: Mapping[str, Array],
        example: Mapping[str, Array],
        path: Path,
    ) -> None:
        self.graph, self.plan, self.weights = graph, plan, weights
        lowered = lower_integers(graph, plan, lambda w: weights[w.name])
        self.lowered = lowered
        shown = [v for node in lowered.graph.nodes for v in node.outputs]
        whole = Graph("forward", lowered.graph.inputs, shown, lowered.graph.nodes)
        kinds = dict.fromkeys(lowered.codes, Encoding("matrix_i8"))
        kept = {w.name: {**weights, **lowered.codes}[w.name] for w in whole.weights()}
        method = satchel.load(write_program(path, [whole], kept, kinds)).method()
        results = method.run(**example)
        self.native = {id(v): a for v, a in zip(shown, results, strict=True)}
        self.native |= {id(v): np.asarray(example[v.name]) for v in lowered.graph.inputs}

    def differences(self) -> list[NodeDifference]:
        plan = self.plan
        return [
            self._compare(node)
            for node in self.graph.nodes
            if plan.runs_on_codes(node) and id(node) not in plan.merged
        ]

    def _compare(self, node: Node) -> NodeDifference:
        result = node.outputs[0]
        want = self._float_result(node)
        weight = node.inputs[1] if node.op in LAYERS else None
        name = weight.name if weight is not None else result.name
        made = self.lowered.coded.get(result.name)
        if made is None:
            got = self.native[id(self.lowered.floats[result.name])]
            return NodeDifference(name, node.op, None, relative_difference(got, want))
        codes = self._codes(result, want).astype(int)
        steps = int(np.abs(self.native[id(made)].astype(int) - codes).max())
        return NodeDifference(name, node.op, steps, None)

    def _float_result(self, node: Node) -> Array:
        """The node, with what is merged into it, in floats."""
        merged = self.plan.residuals.get(id(node))
        if merged is None:
            return self._run(node)
        total = self._run(merged.layer) + self._numbers(merged.residual)
        if merged.activation == "none":
            return total
        (result,) = find_op(merged.activation).reference([total], {})
        return result

    def _run(self, node: Node) -> Array:
        steps = self.plan.heads.get(id(node))
        arrays: list[Array | None] = []
        for place, value in enumerate(node.inputs):
            if value is None:
                arrays.append(None)
            elif value.constant is not None:
                arrays.append(value.constant)
            elif value.weight is not None:
                codes, scales = quantize_rows(self.weights[value.name])
                arrays.append(codes.astype(np.float32) * scales[:, None])
            elif steps is not None and place == 0:
                arrays += [self._native_codes(value), steps.scales]
            else:
                arrays.append(self._numbers(value))
        op = "qattention_qkv" if steps is not None else node.op
        (result,) = find_op(op).reference(arrays, node.attrs)  # type: ignore[arg-type]
        return result

    def _native_codes(self, value: Value) -> Array:
        return self.native[id(self.lowered.coded[value.name])]

    def _numbers(self, value: Value) -> Array:
        return self.plan.encodings[value.name].dequantize(self._native_codes(value))

    def _codes(self, result: Value, want: Array) -> Array:
        steps = self.plan.heads.get(id(result))
        if steps is None:
            return self.plan.encodings[result.name].quantize(want)
        heads = steps.scales.shape[1]
        parts = want.reshape(1, -1, 3, heads, want.shape[-1] // (3 * heads))
        return steps.quantize(parts).reshape(want.shape)
