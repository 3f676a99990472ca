"""Layers and functions of floats in XNNPACK's nodes."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from executorch.backends.xnnpack.serialization import xnnpack_graph_schema as schema

from satchel.backends.executorch.part import XNN_OPS, Part
from satchel.backends.executorch.xnnpack import NO_VALUE
from satchel.graph.ir import Node, attr_float, attr_int, attr_ints, attr_str, largest

LIMITS = {"none": None, "relu": (0.0, math.inf), "relu6": (0.0, 6.0)}


def out_shape(node: Node) -> tuple[int, ...]:
    return largest(node.outputs[0].shape)


def _linear(part: Part, node: Node) -> int:
    x, weight = part.input(node, 0), node.inputs[1]
    assert node.inputs[0] is not None and weight is not None and weight.weight is not None
    rows, cols = weight.weight.shape
    if part.encodings[weight.weight.name].is_quantized:
        x = part.rounded(x, largest(node.inputs[0].shape))
        matrix = part.codes(weight.weight.name, (rows, cols))
    else:
        matrix = part.number(weight)
    bias = part.input(node, 2) if len(node.inputs) > 2 and node.inputs[2] else NO_VALUE
    activation = attr_str(node.attrs, "activation", "none")
    out = part.graph.value(out_shape(node))
    layer = schema.XNNFullyConnected(x, matrix, bias, out, 0)
    part.graph.node(layer, LIMITS.get(activation))
    return out if activation in LIMITS else function(part, activation, out, out_shape(node))


def function(part: Part, name: str, x: int, shape: tuple[int, ...]) -> int:
    """A function of each number, by its name."""
    if name in LIMITS:
        out = part.graph.value(shape)
        part.graph.node(schema.XNNClamp(x, out, 0), LIMITS[name])
        return out
    if name == "silu":
        return part.binary(schema.XNNMultiply, x, function(part, "sigmoid", x, shape), shape)
    if name == "gelu_tanh":
        return _gelu_by_tanh(part, x, shape)
    if name == "hardsigmoid":
        shifted = part.binary(schema.XNNAdd, x, part.number_of(3.0), shape)
        sixth = part.binary(schema.XNNMultiply, shifted, part.number_of(1 / 6), shape)
        out = part.graph.value(shape)
        part.graph.node(schema.XNNClamp(sixth, out, 0), (0.0, 1.0))
        return out
    return part.unary(_FUNCTIONS[name], x, shape)


_FUNCTIONS = {
    "sigmoid": schema.XNNSigmoid,
    "tanh": schema.XNNTanh,
    "gelu": schema.XNNGelu,
    "hardswish": schema.XNNHardswish,
    "exp": schema.XNNExp,
    "sqrt": schema.XNNSquareRoot,
    "abs": schema.XNNAbs,
    "neg": schema.XNNNegate,
}


def _gelu_by_tanh(part: Part, x: int, shape: tuple[int, ...]) -> int:
    """x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x³)))"""
    times, plus = schema.XNNMultiply, schema.XNNAdd
    square = part.unary(schema.XNNSquare, x, shape)
    inner = part.binary(times, square, part.number_of(0.044715), shape)
    inner = part.binary(plus, inner, part.number_of(1.0), shape)
    inner = part.binary(times, part.binary(times, inner, x, shape), _root(part), shape)
    inner = part.binary(plus, part.unary(schema.XNNTanh, inner, shape), part.number_of(1.0), shape)
    half = part.binary(times, x, part.number_of(0.5), shape)
    return part.binary(times, half, inner, shape)


def _root(part: Part) -> int:
    return part.number_of(math.sqrt(2 / math.pi))


def _unary(part: Part, node: Node) -> int:
    return function(part, node.op, part.input(node, 0), out_shape(node))


def _gated(name: str) -> Callable[[Part, Node], int]:
    def lowered(part: Part, node: Node) -> int:
        gate = function(part, name, part.input(node, 0), out_shape(node))
        return part.binary(schema.XNNMultiply, gate, part.input(node, 1), out_shape(node))

    return lowered


def _binary(kind: object) -> Callable[[Part, Node], int]:
    def lowered(part: Part, node: Node) -> int:
        out = part.binary(kind, part.input(node, 0), part.input(node, 1), out_shape(node))
        activation = attr_str(node.attrs, "activation", "none")
        return out if activation == "none" else function(part, activation, out, out_shape(node))

    return lowered


def _affine(part: Part, node: Node) -> int:
    x, shape = part.input(node, 0), out_shape(node)
    scale, shift = attr_float(node.attrs, "scale", 1.0), attr_float(node.attrs, "shift", 0.0)
    if scale != 1:
        x = part.binary(schema.XNNMultiply, x, part.number_of(scale), shape)
    return part.binary(schema.XNNAdd, x, part.number_of(shift), shape) if shift else x


def mean_of_rows(part: Part, x: int, shape: tuple[int, ...]) -> int:
    """Of each row: a layer with one output, because XNNPACK's own mean is of images."""
    width = shape[-1]
    weights = part.array(f"mean.{width}", np.full((1, width), 1 / width, np.float32))
    out = part.graph.value((*shape[:-1], 1))
    part.graph.node(schema.XNNFullyConnected(x, weights, NO_VALUE, out, 0))
    return out


def _scaled_to_one(part: Part, x: int, shape: tuple[int, ...], eps: float) -> int:
    """x over the root of its mean square and eps."""
    rows = (*shape[:-1], 1)
    mean = mean_of_rows(part, part.unary(schema.XNNSquare, x, shape), shape)
    mean = part.binary(schema.XNNAdd, mean, part.number_of(eps), rows)
    inverse = part.unary(schema.XNNReciprocalSquareRoot, mean, rows)
    return part.binary(schema.XNNMultiply, x, inverse, shape)


def _rms_norm(part: Part, node: Node) -> int:
    shape = out_shape(node)
    unit = _scaled_to_one(part, part.input(node, 0), shape, attr_float(node.attrs, "eps"))
    return part.binary(schema.XNNMultiply, unit, part.input(node, 1), shape)


def _layer_norm(part: Part, node: Node) -> int:
    shape, x = out_shape(node), part.input(node, 0)
    centred = part.binary(schema.XNNSubtract, x, mean_of_rows(part, x, shape), shape)
    unit = _scaled_to_one(part, centred, shape, attr_float(node.attrs, "eps"))
    out = part.binary(schema.XNNMultiply, unit, part.input(node, 1), shape)
    if len(node.inputs) > 2 and node.inputs[2] is not None:
        out = part.binary(schema.XNNAdd, out, part.input(node, 2), shape)
    return out


def _reshape(part: Part, node: Node) -> int:
    return part.reshape(part.input(node, 0), node.outputs[0])


def _transpose(part: Part, node: Node) -> int:
    perm = list(attr_ints(node.attrs, "perm"))
    x = part.input(node, 0)
    out = part.graph.like(x, out_shape(node))
    part.graph.node(schema.XNNStaticTranspose(len(perm), perm, x, out, 0))
    return out


def _slice(part: Part, node: Node) -> int:
    assert node.inputs[0] is not None
    shape = largest(node.inputs[0].shape)
    axis = attr_int(node.attrs, "axis") % len(shape)
    start, stop = attr_int(node.attrs, "start"), attr_int(node.attrs, "stop")
    return part.slice(part.input(node, 0), shape, axis, start, stop)


def _softmax(part: Part, node: Node) -> int:
    return part.unary(schema.XNNSoftmax, part.input(node, 0), out_shape(node))


def _matmul(part: Part, node: Node) -> int:
    a, b = part.input(node, 0), part.input(node, 1)
    return part.binary(schema.XNNBatchMatrixMultiply, a, b, out_shape(node))


def _rope(part: Part, node: Node) -> int:
    """The first values of each head rotated by cosines and sines."""
    cos, sin = (part.number(value) for value in part.angles[id(node.inputs[1])])
    x, shape = part.input(node, 0), out_shape(node)
    table = node.inputs[1]
    assert table is not None
    half, axis = largest(table.shape)[1] // 2, len(shape) - 1
    small = (*shape[:-1], half)
    first = part.slice(x, shape, axis, 0, half)
    second = part.slice(x, shape, axis, half, 2 * half)

    def times(a: int, b: int) -> int:
        return part.binary(schema.XNNMultiply, a, b, small)

    rotated = [
        part.binary(schema.XNNSubtract, times(first, cos), times(second, sin), small),
        part.binary(schema.XNNAdd, times(second, cos), times(first, sin), small),
    ]
    if 2 * half < shape[-1]:
        rotated.append(part.slice(x, shape, axis, 2 * half, shape[-1]))
    return part.concat(rotated, axis, shape)


XNN_OPS |= {
    "rope": _rope,
    "linear": _linear,
    "rms_norm": _rms_norm,
    "layer_norm": _layer_norm,
    "silu_mul": _gated("silu"),
    "gelu_tanh_mul": _gated("gelu_tanh"),
    "add": _binary(schema.XNNAdd),
    "sub": _binary(schema.XNNSubtract),
    "mul": _binary(schema.XNNMultiply),
    "div": _binary(schema.XNNDiv),
    "affine": _affine,
    "reshape": _reshape,
    "transpose": _transpose,
    "slice": _slice,
    "softmax": _softmax,
    "matmul": _matmul,
    **dict.fromkeys(["silu", "gelu_tanh", "relu", "relu6", "hardsigmoid", *_FUNCTIONS], _unary),
}
