"""What has no weights: functions of each element, reductions, moves."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from satchel.backends.qnn.onnx_writer.writer import EMITTERS, OnnxWriter
from satchel.errors import GraphError
from satchel.graph.ir import Node, attr_float, attr_int, attr_ints, largest

Emit = Callable[[OnnxWriter, Node, str], None]
# Ops with the same meaning, and what ONNX calls them.
_SAME = {
    "add": "Add",
    "sub": "Sub",
    "mul": "Mul",
    "div": "Div",
    "maximum": "Max",
    "minimum": "Min",
    "matmul": "MatMul",
    "sigmoid": "Sigmoid",
    "tanh": "Tanh",
    "gelu": "Gelu",
    "relu": "Relu",
    "hardswish": "HardSwish",
    "exp": "Exp",
    "sqrt": "Sqrt",
    "abs": "Abs",
    "neg": "Neg",
}
_REDUCTIONS = {
    "reduce_mean": "ReduceMean",
    "reduce_sum": "ReduceSum",
    "reduce_max": "ReduceMax",
    "reduce_min": "ReduceMin",
}


def _same(name: str) -> Emit:
    def emit(to: OnnxWriter, node: Node, out: str) -> None:
        to.node(name, [to.input(node, i) for i in range(len(node.inputs))], out)

    return emit


def _reduction(name: str) -> Emit:
    def emit(to: OnnxWriter, node: Node, out: str) -> None:
        axes = to.indices(f"{out}.axes", *attr_ints(node.attrs, "axes"))
        keep = attr_int(node.attrs, "keepdims", 0)
        to.node(name, [to.input(node, 0), axes], out, keepdims=keep)

    return emit


def _affine(to: OnnxWriter, node: Node, out: str) -> None:
    scale, shift = node.attrs.get("scale"), node.attrs.get("shift")
    if scale is not None and shift is not None:
        raise GraphError(f"{node!r} must be lowered to two")
    kind, number = ("Mul", scale) if scale is not None else ("Add", shift)
    assert isinstance(number, (int, float))
    to.node(kind, [to.input(node, 0), to.number(float(number))], out)


def _hardsigmoid(to: OnnxWriter, node: Node, out: str) -> None:
    to.node("HardSigmoid", [to.input(node, 0)], out, alpha=1 / 6, beta=0.5)


def _clamp(to: OnnxWriter, node: Node, out: str) -> None:
    limits = [
        to.small(f"{out}.{n}", np.array(attr_float(node.attrs, n), to.number_type))
        if n in node.attrs
        else ""
        for n in ("low", "high")
    ]
    to.node("Clip", [to.input(node, 0), *limits], out)


def _softmax(to: OnnxWriter, node: Node, out: str) -> None:
    to.node("Softmax", [to.input(node, 0)], out, axis=attr_int(node.attrs, "axis", -1))


def _reshape(to: OnnxWriter, node: Node, out: str) -> None:
    shape = to.indices(f"{out}.shape", *attr_ints(node.attrs, "shape"))
    to.node("Reshape", [to.input(node, 0), shape], out)


def _transpose(to: OnnxWriter, node: Node, out: str) -> None:
    perm = list(attr_ints(node.attrs, "perm"))
    to.node("Transpose", [to.input(node, 0)], out, perm=perm)


def _slice(to: OnnxWriter, node: Node, out: str) -> None:
    names = ("start", "stop", "axis")
    indices = [to.indices(f"{out}.{n}", attr_int(node.attrs, n)) for n in names]
    to.node("Slice", [to.input(node, 0), *indices], out)


def _concat(to: OnnxWriter, node: Node, out: str) -> None:
    parts = [to.input(node, i) for i in range(len(node.inputs))]
    to.node("Concat", parts, out, axis=attr_int(node.attrs, "axis"))


def _take(to: OnnxWriter, node: Node, out: str) -> None:
    chosen = to.small(f"{out}.numbers", to.array(node.inputs[1]).astype(np.int32))
    to.node("Gather", [to.input(node, 0), chosen], out, axis=attr_int(node.attrs, "axis"))


def _pad(to: OnnxWriter, node: Node, out: str) -> None:
    widths = (*attr_ints(node.attrs, "before"), *attr_ints(node.attrs, "after"))
    to.node("Pad", [to.input(node, 0), to.indices(f"{out}.pads", *widths)], out)


def _expand(to: OnnxWriter, node: Node, out: str) -> None:
    shape = to.indices(f"{out}.shape", *largest(node.outputs[0].shape))
    to.node("Expand", [to.input(node, 0), shape], out)


EMITTERS |= {op: _same(name) for op, name in _SAME.items()}
EMITTERS |= {op: _reduction(name) for op, name in _REDUCTIONS.items()}
EMITTERS |= {
    "affine": _affine,
    "hardsigmoid": _hardsigmoid,
    "clamp": _clamp,
    "softmax": _softmax,
    "reshape": _reshape,
    "transpose": _transpose,
    "slice": _slice,
    "concat": _concat,
    "take": _take,
    "pad": _pad,
    "expand": _expand,
}
