"""Convolutions, pooling, products and norms."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from satchel.graph.ir import Attribute, DType, Value
from satchel.onnx.operators.registry import Call, known_shape, onnx_operator, product
from satchel.torch.lowering import Lowering, axis_of
from satchel.torch.operator_error import OperatorError
from satchel.torch.operators.conv import both, convolve
from satchel.torch.operators.linear import linear, matmul
from satchel.torch.operators.normalize import batch_norm
from satchel.torch.operators.pool import pool_3d, pool_image


def _pads(
    low: Lowering,
    call: Call,
    x: Value,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> list[int]:
    """What is added before each dimension, and then what is added behind."""
    auto, spatial = call.get("auto_pad", "NOTSET"), len(kernel)
    if auto in ("NOTSET", ""):
        return list(call.get("pads") or [0] * (2 * spatial))
    if auto == "VALID":
        return [0] * (2 * spatial)
    before, after = [], []
    sizes = known_shape(low, x, call.name)[2:]
    for size, taps, step, gap in zip(sizes, kernel, strides, dilations, strict=True):
        reach = (taps - 1) * gap + 1
        total = max(0, (-(-size // step) - 1) * step + reach - size)
        small, large = total // 2, total - total // 2
        before.append(small if auto == "SAME_UPPER" else large)
        after.append(large if auto == "SAME_UPPER" else small)
    return [*before, *after]


@onnx_operator("Conv")
def conv(low: Lowering, call: Call, x: Value, weight: Value, bias: Value | None = None) -> Value:
    kernel = known_shape(low, weight, "Conv")[2:]
    spatial = len(kernel)
    strides = call.get("strides") or [1] * spatial
    dilations = call.get("dilations") or [1] * spatial
    pads = _pads(low, call, x, kernel, strides, dilations)
    first, last = pads[:spatial], pads[spatial:]
    fixed = weight.constant is not None and (bias is None or bias.constant is not None)
    padding: list[int] = pads if spatial <= 2 and fixed else first
    if (spatial == 3 or not fixed) and first != last:
        x, padding = low.pad(x, [0, 0, *first], [0, 0, *last], 0), [0] * spatial
        first = last = padding
    sizes = known_shape(low, x, "Conv")
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    around = [a + b for a, b in zip(first, last, strict=True)]
    out = [
        (size + add - r) // step + 1
        for size, add, r, step in zip(sizes[2:], around, reach, strides, strict=True)
    ]
    low.shape, low.dtype = (sizes[0], low.known(weight.shape[0], "Conv"), *out), DType.f32
    return convolve(low, x, weight, bias, strides, padding, dilations, call.get("group", 1))


@onnx_operator("ConvTranspose")
def conv_transpose(
    low: Lowering, call: Call, x: Value, weight: Value, bias: Value | None = None
) -> Value:
    kernel = known_shape(low, weight, "ConvTranspose")[2:]
    spatial, sizes = len(kernel), known_shape(low, x, "ConvTranspose")
    strides = call.get("strides") or [1] * spatial
    dilations = call.get("dilations") or [1] * spatial
    extra = call.get("output_padding") or [0] * spatial
    pads = list(call.get("pads") or [0] * (2 * spatial))
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    whole = [
        (n - 1) * s + r + e for n, s, r, e in zip(sizes[2:], strides, reach, extra, strict=True)
    ]
    wanted, auto = call.get("output_shape"), call.get("auto_pad", "NOTSET")
    if wanted is None and auto in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [n * s for n, s in zip(sizes[2:], strides, strict=True)]
    if wanted is not None:
        pairs = list(zip(whole, wanted[-spatial:], strict=True))
        total = [max(0, w - t) for w, t in pairs]
        extra = [e + max(0, t - w) for e, (w, t) in zip(extra, pairs, strict=True)]
        whole = [max(w, t) for w, t in pairs]
        small, large = [t // 2 for t in total], [t - t // 2 for t in total]
        pads = [*small, *large] if auto != "SAME_LOWER" else [*large, *small]
        if auto == "NOTSET":  # then what is odd comes first
            pads = [*large, *small]
    group = call.get("group", 1)
    first, last = pads[:spatial], pads[spatial:]
    out = [w - a - b for w, a, b in zip(whole, first, last, strict=True)]
    low.dtype = DType.f32
    low.shape = (sizes[0], low.known(weight.shape[1], "ConvTranspose") * group, *out)
    fixed = weight.constant is not None and (bias is None or bias.constant is not None)
    if spatial > 2 or (not fixed and first != last):
        raise OperatorError("a transposed convolution of this kind")
    padding = pads if fixed else first
    return convolve(low, x, weight, bias, strides, padding, dilations, group, extra)


@onnx_operator("MaxPool", "AveragePool")
def pool(low: Lowering, call: Call, x: Value) -> Value | list[Value | None]:
    kernel = call.get("kernel_shape")
    spatial = len(kernel)
    if call.outputs > 1:
        raise OperatorError("where the greatest of a window is")
    strides = call.get("strides") or [1] * spatial
    dilations = call.get("dilations") or [1] * spatial
    pads = _pads(low, call, x, kernel, strides, dilations)
    ceil, is_mean = int(call.get("ceil_mode", 0)), call.name == "AveragePool"
    inside = int(call.get("count_include_pad", 0))
    first, last = pads[:spatial], pads[spatial:]
    if x.dtype != DType.f32:
        raise OperatorError("pooling of whole numbers")
    if spatial == 3:
        if first != last or (is_mean and any(d != 1 for d in dilations)):
            raise OperatorError("pooling over 3 dimensions with this padding")
        reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
        sizes = known_shape(low, x, call.name)
        rest_of = [n + 2 * p - r for n, p, r in zip(sizes[2:], first, reach, strict=True)]
        steps = [-(-n // s) if ceil else n // s for n, s in zip(rest_of, strides, strict=True)]
        low.shape = (*sizes[:2], *(n + 1 for n in steps))
        low.operator = "avg_pool3d" if is_mean else "max_pool3d"
        rest = (bool(ceil), bool(inside), None) if is_mean else (dilations, bool(ceil))
        return pool_3d(low, x, kernel, strides, first, *rest)
    if is_mean and any(d != 1 for d in dilations):
        raise OperatorError("a mean of numbers that lie apart")
    top, left = both(first, spatial, 0)
    bottom, right = both(last, spatial, 0)
    attrs: dict[str, Attribute] = {
        "kernel": both(kernel, spatial, 1),
        "stride": both(strides, spatial, 1),
        "padding": (top, bottom, left, right),
        "ceil_mode": ceil,
    }
    if is_mean:
        return pool_image(low, "avg_pool2d", x, spatial, attrs | {"count_include_pad": inside})
    gaps = both(dilations, spatial, 1)
    return pool_image(low, "max_pool2d", x, spatial, attrs | {"dilation": gaps})


@onnx_operator("GlobalAveragePool", "GlobalMaxPool")
def global_pool(low: Lowering, call: Call, x: Value) -> Value:
    op = "reduce_mean" if call.name == "GlobalAveragePool" else "reduce_max"
    return low.emit(op, x, axes=tuple(range(2, len(x.shape))), keepdims=1)


@onnx_operator("MatMul")
def matrix_product(low: Lowering, call: Call, a: Value, b: Value) -> Value:
    low.dtype = a.dtype
    return matmul(low, a, b)


@onnx_operator("Gemm")
def gemm(low: Lowering, call: Call, a: Value, b: Value, c: Value | None = None) -> Value:
    low.dtype = DType.f32
    left = low.transpose(a, (1, 0)) if call.get("transA", 0) else a
    weight = b if call.get("transB", 0) else low.transpose(b, (1, 0))
    alpha, beta = float(call.get("alpha", 1.0)), float(call.get("beta", 1.0))
    if alpha != 1:
        weight = low.affine(weight, scale=alpha)
    if c is not None and beta != 1:
        c = low.affine(c, scale=beta)
    fits = c is not None and len(c.shape) == 1 and c.shape[0] == weight.shape[0]
    made = linear(low, left, weight, c if fits else None)
    return made if c is None or fits else low.add(made, c)


@onnx_operator("BatchNormalization")
def batch_normalization(
    low: Lowering, call: Call, x: Value, scale: Value, bias: Value, mean: Value, variance: Value
) -> Value:
    if call.get("training_mode", 0):
        raise OperatorError("BatchNormalization in training mode")
    return batch_norm(low, x, scale, bias, mean, variance, False, 0.0, call.get("epsilon", 1e-5))


def _normed(low: Lowering, x: Value, axes: tuple[int, ...], eps: float) -> tuple[Value, ...]:
    """(x - mean) / sqrt(variance + eps) over some axes; the mean; what it is multiplied with."""
    mean = low.reduce_mean(x, axes=axes, keepdims=1)
    centred = low.sub(x, mean)
    variance = low.reduce_mean(low.mul(centred, centred), axes=axes, keepdims=1)
    inverse = low.rsqrt(low.affine(variance, shift=float(eps)))
    return low.mul(centred, inverse), mean, inverse


@onnx_operator("LayerNormalization")
def layer_normalization(
    low: Lowering, call: Call, x: Value, scale: Value, bias: Value | None = None
) -> Value | list[Value]:
    rank, eps = len(x.shape), float(call.get("epsilon", 1e-5))
    axis = axis_of(call.get("axis", -1), rank)
    if axis == rank - 1 and call.outputs == 1 and len(scale.shape) == 1:
        return low.emit("layer_norm", x, scale, *([bias] if bias is not None else []), eps=eps)
    made, mean, inverse = _normed(low, x, tuple(range(axis, rank)), eps)
    made = low.mul(made, scale)
    return [made if bias is None else low.add(made, bias), mean, inverse]


@onnx_operator("RMSNormalization")
def rms_normalization(low: Lowering, call: Call, x: Value, scale: Value) -> Value:
    rank = len(x.shape)
    axes = tuple(range(axis_of(call.get("axis", -1), rank), rank))
    mean = low.reduce_mean(low.mul(x, x), axes=axes, keepdims=1)
    inverse = low.rsqrt(low.affine(mean, shift=float(call.get("epsilon", 1e-5))))
    return low.mul(low.mul(x, inverse), scale)


def _by_channel(low: Lowering, vector: Value, rank: int) -> Value:
    return low.reshape(vector, (*vector.shape, *(1 for _ in range(rank - 2))))


@onnx_operator("InstanceNormalization")
def instance_normalization(low: Lowering, call: Call, x: Value, scale: Value, bias: Value) -> Value:
    rank = len(x.shape)
    made, _, _ = _normed(low, x, tuple(range(2, rank)), call.get("epsilon", 1e-5))
    return low.add(low.mul(made, _by_channel(low, scale, rank)), _by_channel(low, bias, rank))


@onnx_operator("GroupNormalization")
def group_normalization(low: Lowering, call: Call, x: Value, scale: Value, bias: Value) -> Value:
    groups, sizes = call.get("num_groups"), known_shape(low, x, "GroupNormalization")
    parted = low.reshape(x, (sizes[0], groups, product(sizes[1:]) // groups))
    made, _, _ = _normed(low, parted, (2,), call.get("epsilon", 1e-5))
    made = low.reshape(made, sizes)
    if call.version < 21:  # one of each for a group
        each = sizes[1] // groups
        scale, bias = (
            low.reshape(low.expand(low.reshape(v, (groups, 1)), (groups, each)), (sizes[1],))
            for v in (scale, bias)
        )
    rank = len(sizes)
    return low.add(low.mul(made, _by_channel(low, scale, rank)), _by_channel(low, bias, rank))


@onnx_operator("MeanVarianceNormalization")
def mean_variance(low: Lowering, call: Call, x: Value) -> Value:
    axes = tuple(call.get("axes") or (0, 2, 3))
    mean = low.reduce_mean(x, axes=axes, keepdims=1)
    centred = low.sub(x, mean)
    variance = low.reduce_mean(low.mul(centred, centred), axes=axes, keepdims=1)
    return low.div(centred, low.affine(low.sqrt(variance), shift=1e-9))


@onnx_operator("LpNormalization")
def lp_normalization(low: Lowering, call: Call, x: Value) -> Value:
    axes = (axis_of(call.get("axis", -1), len(x.shape)),)
    if call.get("p", 2) == 1:
        size = low.reduce_sum(low.abs(x), axes=axes, keepdims=1)
    else:
        size = low.sqrt(low.reduce_sum(low.mul(x, x), axes=axes, keepdims=1))
    zero = low.compare(size, low.number(0.0), kind="eq")
    return low.where(zero, low.number(0.0), low.div(x, size))


@onnx_operator("LRN")
def local_response(low: Lowering, call: Call, x: Value) -> Value:
    size, channels = call.get("size"), low.known(x.shape[1], "LRN")
    before, after = (size - 1) // 2, size - 1 - (size - 1) // 2
    # What each channel adds up: a matrix of ones around the diagonal.
    near = np.subtract.outer(np.arange(channels), np.arange(channels))
    matrix = ((near <= before) & (-near <= after)).astype(np.float32)
    rank = len(x.shape)
    last = [0, *range(2, rank), 1]
    squares = low.transpose(low.mul(x, x), last)
    total = low.emit("linear", squares, low.constant(matrix, "LRN.mix"))
    total = low.transpose(total, [0, rank - 1, *range(1, rank - 1)])
    alpha, bias = float(call.get("alpha", 1e-4)), float(call.get("bias", 1.0))
    base = low.affine(total, scale=alpha / size, shift=bias)
    return low.div(x, low.emit("pow", base, low.number(float(call.get("beta", 0.75)))))
