"""Activation functions: those that have an op of their own, and those made of others."""

from __future__ import annotations

from satchel.graph.ir import DType, Value
from satchel.torch.lowering import Lowering, axis_of
from satchel.torch.operators.registry import aten


def _same(name: str) -> None:
    @aten(name)
    def apply(low: Lowering, x: Value) -> Value:
        return low.emit(name, x)


for _name in "hardswish hardsigmoid silu".split():
    _same(_name)


@aten("relu")
def relu(low: Lowering, x: Value) -> Value:
    return low.relu(x) if x.dtype == DType.f32 else low.maximum(x, low.number(0, x.dtype))


@aten("gelu")
def gelu(low: Lowering, x: Value, *, approximate: str = "none") -> Value:
    return low.gelu_tanh(x) if approximate == "tanh" else low.gelu(x)


@aten("hardtanh")
def hardtanh(low: Lowering, x: Value, least: float = -1.0, most: float = 1.0) -> Value:
    if x.dtype == DType.f32:
        return low.clamp(x, low=float(least), high=float(most))
    least_value, most_value = (low.number(int(n), x.dtype) for n in (least, most))
    return low.minimum(low.maximum(x, least_value), most_value)


@aten("relu6")
def relu6(low: Lowering, x: Value) -> Value:
    return low.clamp(x, low=0.0, high=6.0)


def _negative_part(low: Lowering, x: Value) -> Value:
    return low.neg(low.relu(low.neg(x)))


@aten("leaky_relu")
def leaky_relu(low: Lowering, x: Value, slope: float = 0.01) -> Value:
    return low.add(low.relu(x), low.affine(_negative_part(low, x), scale=float(slope)))


@aten("prelu", "_prelu_kernel")
def prelu(low: Lowering, x: Value, slope: Value) -> Value:
    if len(slope.shape) == 1 and slope.shape[0] != 1 and len(x.shape) > 1:
        slope = low.reshape(slope, (*slope.shape, *(1 for _ in x.shape[2:])))
    return low.add(low.relu(x), low.mul(_negative_part(low, x), slope))


@aten("elu")
def elu(
    low: Lowering, x: Value, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0
) -> Value:
    below = low.exp(low.affine(_negative_part(low, x), scale=float(input_scale)))
    factor = float(alpha * scale)
    above = low.affine(low.relu(x), scale=float(scale))
    return low.add(above, low.affine(below, scale=factor, shift=-factor))


@aten("selu")
def selu(low: Lowering, x: Value) -> Value:
    return elu(low, x, 1.6732632423543772, 1.0507009873554805)


@aten("celu")
def celu(low: Lowering, x: Value, alpha: float = 1.0) -> Value:
    return elu(low, x, alpha, 1.0, 1 / alpha)


@aten("softplus")
def softplus(low: Lowering, x: Value, beta: float = 1.0, threshold: float = 20.0) -> Value:
    """log(1 + exp(x)), written so that a large x does not overflow; x above the threshold."""
    if beta != 1:
        scaled = low.affine(x, scale=float(beta))
        return low.affine(softplus(low, scaled, 1.0, threshold), scale=1 / beta)
    tail = low.log(low.affine(low.exp(low.neg(low.abs(x))), shift=1.0))
    smooth = low.add(low.relu(x), tail)
    if threshold >= 17:  # from where on both are the same float
        return smooth
    return low.where(low.compare(x, low.number(float(threshold)), kind="gt"), x, smooth)


@aten("mish")
def mish(low: Lowering, x: Value) -> Value:
    return low.mul(x, low.tanh(softplus(low, x)))


@aten("log_sigmoid", "log_sigmoid_forward")
def log_sigmoid(low: Lowering, x: Value) -> Value:
    return low.neg(softplus(low, low.neg(x)))


@aten("softsign")
def softsign(low: Lowering, x: Value) -> Value:
    return low.div(x, low.affine(low.abs(x), shift=1.0))


@aten("glu")
def glu(low: Lowering, x: Value, dim: int = -1) -> Value:
    axis = axis_of(dim, len(x.shape))
    half = low.known(x.shape[axis], "glu") // 2
    first, second = low.slice(x, axis, 0, half), low.slice(x, axis, half, 2 * half)
    return low.mul(first, low.sigmoid(second))


@aten("threshold")
def threshold(low: Lowering, x: Value, limit: float, value: float) -> Value:
    above = low.compare(x, low.number(float(limit)), kind="gt")
    return low.where(above, x, low.number(float(value)))


@aten("_softmax", "softmax")
def softmax(low: Lowering, x: Value, dim: int, half_to_float: object = None) -> Value:
    if not x.shape:  # a number is all of itself
        return low.reshape(softmax(low, low.reshape(x, (1,)), 0), ())
    return low.emit("softmax", low.floats(x), axis=axis_of(dim, len(x.shape)))


@aten("_log_softmax", "log_softmax")
def log_softmax(low: Lowering, x: Value, dim: int, half_to_float: object = None) -> Value:
    """x - max - log(sum(exp(x - max)))."""
    if not x.shape:
        return low.reshape(log_softmax(low, low.reshape(x, (1,)), 0), ())
    x, axes = low.floats(x), (axis_of(dim, len(x.shape)),)
    centred = low.sub(x, low.reduce_max(x, axes=axes, keepdims=1))
    total = low.reduce_sum(low.exp(centred), axes=axes, keepdims=1)
    return low.sub(centred, low.log(total))
