"""Convolutions, pooling and moves of images, which are channels-last in XNNPACK's nodes too."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from executorch.backends.xnnpack.serialization import xnnpack_graph_schema as schema
from executorch.backends.xnnpack.utils.xnnpack_constants import XNN_FLAG_KEEP_DIMS

from satchel.backends.executorch.float_ops import LIMITS, function, mean_of_rows, out_shape
from satchel.backends.executorch.part import XNN_OPS, Part
from satchel.backends.executorch.xnnpack import NO_VALUE
from satchel.backends.foreign import lacks_dimensions
from satchel.backends.weight_rows import Bytes
from satchel.graph.ir import DType, Node, attr_float, attr_int, attr_ints, attr_str, largest
from satchel.graph.ops.window import Window
from satchel.runtime.program import Program

_MOST_PARTS = 5  # that are joined at once


def _window(window: Window) -> list[int]:
    """Padding (top, right, bottom, left), kernel, stride and dilation, as the nodes have them."""
    top, bottom, left, right = window.padding
    return [top, right, bottom, left, *window.kernel, *window.stride, *window.dilation]


def _conv2d(part: Part, node: Node) -> int:
    x, weight = node.inputs[0], node.inputs[1]
    assert x is not None and weight is not None and weight.weight is not None
    window, shape = Window.of("conv2d", node.attrs), out_shape(node)
    channels, outputs = largest(x.shape)[3], shape[3]
    groups = attr_int(node.attrs, "groups", 1)
    (kh, kw), name = window.kernel, weight.weight.name
    if is_depthwise(node):
        stored = _depthwise(name, outputs, kh * kw)
        matrix = part.stored(f"{name}#depthwise", (1, kh, kw, outputs), stored)
    else:
        matrix = part.stored(
            f"{name}#kernel", (outputs, kh, kw, channels // groups), part.rows_of(weight.weight)
        )
    bias = part.input(node, 2) if len(node.inputs) > 2 and node.inputs[2] else NO_VALUE
    activation = attr_str(node.attrs, "activation", "none")
    out = part.graph.value(shape)
    convolve(part, node, matrix, bias, out)
    return out if activation in LIMITS else function(part, activation, out, shape)


def is_depthwise(node: Node) -> bool:
    """Whether each channel has kernels of its own, which lie in an order of their own."""
    assert node.inputs[0] is not None
    groups = attr_int(node.attrs, "groups", 1)
    return groups == largest(node.inputs[0].shape)[3] and groups > 1


def convolve(part: Part, node: Node, matrix: int, bias: int, out: int) -> None:
    """The layer itself, in floats or in codes, as what it is given is."""
    assert node.inputs[0] is not None
    groups = attr_int(node.attrs, "groups", 1)
    channels, outputs = largest(node.inputs[0].shape)[3], out_shape(node)[3]
    kind = schema.XNNDepthwiseConv2d if is_depthwise(node) else schema.XNNConv2d
    sizes = [channels // groups, outputs // groups, groups, 0, 0]
    window = _window(Window.of("conv2d", node.attrs))
    layer = kind(*window, *sizes, part.input(node, 0), matrix, bias, out, 0)
    part.graph.node(layer, LIMITS.get(attr_str(node.attrs, "activation", "none")))


def _depthwise(name: str, outputs: int, taps: int) -> Bytes:
    """The kernels of channels by themselves: all channels of a tap lie together."""

    def make(program: Program | None) -> Iterator[bytes]:
        assert program is not None
        yield np.ascontiguousarray(program.weight(name).T, np.float32).tobytes()

    return Bytes(4 * outputs * taps, make)


def _max_pool2d(part: Part, node: Node) -> int:
    window = Window.of("max_pool2d", node.attrs)
    return part.unary(
        schema.XNNMaxPooling2d, part.input(node, 0), out_shape(node), *_window(window)
    )


def _avg_pool2d(part: Part, node: Node) -> int:
    window = Window.of("avg_pool2d", node.attrs)
    return part.unary(
        schema.XNNAvgPooling2d, part.input(node, 0), out_shape(node), *_window(window)
    )


def _reduce_mean(part: Part, node: Node) -> int:
    x, axes = node.inputs[0], attr_ints(node.attrs, "axes")
    assert x is not None
    shape, number = largest(x.shape), part.input(node, 0)
    if axes == (len(shape) - 1,):
        out = mean_of_rows(part, number, shape)
    else:
        out = part.graph.value((shape[0], 1, 1, shape[3]))
        part.graph.node(schema.XNNGlobalAvgPooling2d(number, out, XNN_FLAG_KEEP_DIMS))
    return out if attr_int(node.attrs, "keepdims", 0) else part.reshape(out, node.outputs[0])


def _concat(part: Part, node: Node) -> int:
    axis, shape = attr_int(node.attrs, "axis"), out_shape(node)
    numbers = [part.input(node, place) for place in range(len(node.inputs))]
    sizes = [largest(v.shape)[axis] for v in node.inputs if v is not None]
    while len(numbers) > 1:
        some = min(_MOST_PARTS, len(numbers))
        total = sum(sizes[:some])
        joined = part.concat(numbers[:some], axis, (*shape[:axis], total, *shape[axis + 1 :]))
        numbers, sizes = [joined, *numbers[some:]], [total, *sizes[some:]]
    return numbers[0]


def _pad(part: Part, node: Node) -> int:
    before, after = (list(attr_ints(node.attrs, name)) for name in ("before", "after"))
    value, x = attr_float(node.attrs, "value", 0.0), part.input(node, 0)
    if node.outputs[0].dtype == DType.u8:  # a code, and the node wants what it stands for
        scale, zero = part.graph.steps(x)
        value = (value - 128 - zero) * scale
    out = part.graph.like(x, out_shape(node))
    part.graph.node(schema.XNNStaticConstantPad(before, after, value, x, out, 0))
    return out


def _clamp(part: Part, node: Node) -> int:
    low = attr_float(node.attrs, "low", -np.inf)
    high = attr_float(node.attrs, "high", np.inf)
    out = part.graph.value(out_shape(node))
    part.graph.node(schema.XNNClamp(part.input(node, 0), out, 0), (low, high))
    return out


def _attention_full(part: Part, node: Node) -> int:
    """softmax(q k / …) v of [images, tokens, heads, size]."""
    assert node.inputs[0] is not None and node.inputs[1] is not None
    count, tokens, heads, size = largest(node.inputs[0].shape)
    others = largest(node.inputs[1].shape)[1]

    def transposed(x: int, perm: list[int], shape: tuple[int, ...]) -> int:
        out = part.graph.value(shape)
        part.graph.node(schema.XNNStaticTranspose(len(perm), perm, x, out, 0))
        return out

    scale = part.number_of(attr_float(node.attrs, "scale"))
    q = part.binary(schema.XNNMultiply, part.input(node, 0), scale, (count, tokens, heads, size))
    q = transposed(q, [0, 2, 1, 3], (count, heads, tokens, size))
    k = transposed(part.input(node, 1), [0, 2, 3, 1], (count, heads, size, others))
    v = transposed(part.input(node, 2), [0, 2, 1, 3], (count, heads, others, size))
    shape = (count, heads, tokens, others)
    scores = part.binary(schema.XNNBatchMatrixMultiply, q, k, shape)
    if len(node.inputs) > 3 and node.inputs[3] is not None:
        scores = part.binary(schema.XNNAdd, scores, part.input(node, 3), shape)
    weights = part.unary(schema.XNNSoftmax, scores, shape)
    kind = schema.XNNBatchMatrixMultiply
    mixed = part.binary(kind, weights, v, (count, heads, tokens, size))
    return transposed(mixed, [0, 2, 1, 3], (count, tokens, heads, size))


def why_not(node: Node) -> str | None:
    """What of an op XNNPACK does not do."""
    if lacks_dimensions(node):
        return f"{node.op} of a number without dimensions"
    if node.op == "conv2d" and len(node.inputs) > 3 and node.inputs[3] is not None:
        return "conv2d that adds another image to its result"
    if node.op == "layer_norm" and "out_scale" in node.attrs:
        return "layer_norm that gives codes"
    if node.op == "softmax":
        axis, x = attr_int(node.attrs, "axis", -1), node.inputs[0]
        last = x is not None and axis % len(x.shape) == len(x.shape) - 1
        return None if last else "softmax along another axis than the last"
    if node.op in ("max_pool2d", "avg_pool2d") and attr_int(node.attrs, "ceil_mode", 0):
        return f"{node.op} whose windows reach over the edge (ceil_mode)"
    if node.op == "avg_pool2d":
        padded = any(Window.of("avg_pool2d", node.attrs).padding)
        counted = bool(attr_int(node.attrs, "count_include_pad", 1))
        if attr_int(node.attrs, "divisor", 0) or (padded and counted):
            return "avg_pool2d that counts its padding, or divides by a number of its own"
    bias = node.inputs[3] if node.op == "attention_full" and len(node.inputs) > 3 else None
    if bias is not None and largest(bias.shape)[0] != 1:
        return "attention with another bias for each window"
    if node.op in ("reduce_mean", "qmean"):
        x, axes = node.inputs[0], attr_ints(node.attrs, "axes")
        rank = 0 if x is None else len(x.shape)
        if axes != (rank - 1,) and not (rank == 4 and tuple(axes) == (1, 2)):
            return "means along other axes than rows and columns, or the last"
    return None


XNN_OPS |= {
    "attention_full": _attention_full,
    "conv2d": _conv2d,
    "max_pool2d": _max_pool2d,
    "avg_pool2d": _avg_pool2d,
    "reduce_mean": _reduce_mean,
    "concat": _concat,
    "pad": _pad,
    "clamp": _clamp,
}
