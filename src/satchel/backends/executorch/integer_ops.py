"""Layers of codes in XNNPACK's nodes: 8 bits in and out, sums of 32, a scale for each output."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from executorch.backends.xnnpack.serialization import xnnpack_graph_schema as schema
from executorch.backends.xnnpack.utils.xnnpack_constants import XNN_FLAG_KEEP_DIMS
from numpy.typing import NDArray

from satchel.backends.executorch.float_ops import LIMITS, function, mean_of_rows, out_shape
from satchel.backends.executorch.image_ops import convolve, is_depthwise
from satchel.backends.executorch.part import XNN_OPS, Kind, Part
from satchel.backends.weight_rows import Bytes, plain_bytes
from satchel.graph.ir import Node, attr_float, attr_int, attr_ints, attr_str, largest
from satchel.graph.ops.window import Window
from satchel.runtime.program import Program

Array = NDArray[Any]
_LARGEST_BIAS = 2.0**30  # in steps of a layer's sums, which have 32 bits
# By what steps of the inputs may be larger than those of the result, in XNNPACK.
_SUMS, _PRODUCTS, _MEANS = (2.0**-10, 2.0**8), (2.0**-16, 2.0**8), (2.0**-8, 2.0**8)


def _result(part: Part, node: Node) -> int:
    scale, zero = attr_float(node.attrs, "out_scale"), attr_int(node.attrs, "out_zero", 0)
    return part.coded(out_shape(node), scale, zero)


def _quantize(part: Part, node: Node) -> int:
    scale, zero = attr_float(node.attrs, "scale"), attr_int(node.attrs, "zero", 0)
    return part.as_codes(part.input(node, 0), out_shape(node), scale, zero)


def _dequantize(part: Part, node: Node) -> int:
    return part.as_floats(part.input(node, 0), out_shape(node))


def _weights(part: Part, node: Node, shape: tuple[int, ...], axis: int) -> tuple[int, int]:
    """The matrix of a layer in this shape, whose outputs are on ``axis``, and its bias.

    A bias is counted in steps of the input times those of the row. Where it would not fit into 32
    bits that way, the row has larger steps.
    """
    weight, scale = node.inputs[1], node.inputs[2]
    assert weight is not None and weight.weight is not None
    assert scale is not None and scale.constant is not None
    bias = node.inputs[3] if len(node.inputs) > 3 else None
    steps, _ = part.graph.steps(part.input(node, 0))
    products = scale.constant.astype(np.float64)
    numbers = np.zeros_like(products)
    if bias is not None and bias.constant is not None:
        numbers = bias.constant.astype(np.float64)
    wider = np.maximum(np.abs(numbers) / products / _LARGEST_BIAS, 1.0)
    products = products * wider
    data = _codes(weight.weight.name, weight.weight.shape, axis > 0, wider)
    key, rows = f"{weight.weight.name}#{node.outputs[0].name}", products / steps
    matrix = part.by_channel(key, shape, data, rows, axis, Kind.xnn_datatype_qcint8)
    counted = plain_bytes(np.rint(numbers / products).astype(np.int32))
    places, kind = (len(products),), Kind.xnn_datatype_qcint32
    return matrix, part.by_channel(f"{key}#bias", places, counted, products, 0, kind)


def _codes(name: str, shape: tuple[int, ...], outputs_last: bool, wider: Array) -> Bytes:
    def make(program: Program | None) -> Iterator[bytes]:
        assert program is not None
        codes = program.weight(name)
        if (wider > 1).any():
            codes = np.rint(codes / wider[:, None]).astype(np.int8)
        yield np.ascontiguousarray(codes.T if outputs_last else codes).tobytes()

    return Bytes(int(np.prod(shape)), make)


def _qconv2d(part: Part, node: Node) -> int:
    (kh, kw), outputs = Window.of("qconv2d", node.attrs).kernel, out_shape(node)[3]
    assert node.inputs[0] is not None
    channels = largest(node.inputs[0].shape)[3] // attr_int(node.attrs, "groups", 1)
    if is_depthwise(node):
        matrix, bias = _weights(part, node, (1, kh, kw, outputs), 3)
    else:
        matrix, bias = _weights(part, node, (outputs, kh, kw, channels), 0)
    out = _result(part, node)
    convolve(part, node, matrix, bias, out)
    return out


def _qlinear(part: Part, node: Node) -> int:
    assert node.inputs[1] is not None and node.inputs[1].weight is not None
    matrix, bias = _weights(part, node, node.inputs[1].weight.shape, 0)
    out = _result(part, node)
    layer = schema.XNNFullyConnected(part.input(node, 0), matrix, bias, out, 0)
    part.graph.node(layer, LIMITS[attr_str(node.attrs, "activation", "none")])
    return out


def _pair(kind: Any, bounds: tuple[float, float]) -> Callable[[Part, Node], int]:
    def lowered(part: Part, node: Node) -> int:
        a, b, shape = part.input(node, 0), part.input(node, 1), out_shape(node)
        (first, _), (second, _) = part.graph.steps(a), part.graph.steps(b)
        scale = attr_float(node.attrs, "out_scale")
        ratios = [first * second] if kind is schema.XNNMultiply else [first, second]
        limits = attr_str(node.attrs, "activation", "none")
        if all(bounds[0] <= ratio / scale < bounds[1] for ratio in ratios):
            out = _result(part, node)
            part.graph.node(kind(a, b, out, 0), LIMITS[limits])
            return out
        # Steps that far apart are floats in between.
        shapes = [largest(v.shape) for v in node.inputs if v is not None]
        a, b = part.as_floats(a, shapes[0]), part.as_floats(b, shapes[1])
        made = part.binary(kind, a, b, shape)
        made = made if limits == "none" else function(part, limits, made, shape)
        return part.as_codes(made, shape, scale, attr_int(node.attrs, "out_zero", 0))

    return lowered


def _qmean(part: Part, node: Node) -> int:
    x, axes = node.inputs[0], attr_ints(node.attrs, "axes")
    assert x is not None
    shape, number = largest(x.shape), part.input(node, 0)
    scale, zero = attr_float(node.attrs, "out_scale"), attr_int(node.attrs, "out_zero", 0)
    small = (shape[0], 1, 1, shape[-1])
    if axes == (len(shape) - 1,):
        made = mean_of_rows(part, part.as_floats(number, shape), shape)
        out = part.as_codes(made, (*shape[:-1], 1), scale, zero)
    elif _MEANS[0] <= part.graph.steps(number)[0] / scale < _MEANS[1]:
        out = part.coded(small, scale, zero)
        part.graph.node(schema.XNNGlobalAvgPooling2d(number, out, XNN_FLAG_KEEP_DIMS))
    else:
        made, floats = part.graph.value(small), part.as_floats(number, shape)
        part.graph.node(schema.XNNGlobalAvgPooling2d(floats, made, XNN_FLAG_KEEP_DIMS))
        out = part.as_codes(made, small, scale, zero)
    return out if attr_int(node.attrs, "keepdims", 0) else part.reshape(out, node.outputs[0])


XNN_OPS |= {
    "quantize": _quantize,
    "dequantize": _dequantize,
    "qconv2d": _qconv2d,
    "qlinear": _qlinear,
    "qadd": _pair(schema.XNNAdd, _SUMS),
    "qmul": _pair(schema.XNNMultiply, _PRODUCTS),
    "qmean": _qmean,
}
