"""Normalisation as it is at inference: batch norm is a factor and a shift for each channel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from satchel.graph.ir import Sym, Value
from satchel.torch.lowering import Lowering
from satchel.torch.operators.registry import OperatorError, aten


def _by_channel(low: Lowering, vector: Value, rank: int) -> Value:
    """[C] so that it broadcasts along axis 1."""
    return low.reshape(vector, (*vector.shape, *(1 for _ in range(rank - 2))))


def _batch_norm(
    low: Lowering,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value | None,
    variance: Value | None,
    eps: float,
) -> Value:
    if mean is None or variance is None:
        raise OperatorError("batch norm without running statistics")
    factor = low.rsqrt(low.affine(variance, shift=float(eps)))
    if weight is not None:
        factor = low.mul(factor, weight)
    shift = low.neg(low.mul(mean, factor))
    if bias is not None:
        shift = low.add(shift, bias)
    rank = len(x.shape)
    return low.add(low.mul(x, _by_channel(low, factor, rank)), _by_channel(low, shift, rank))


@aten("batch_norm")
def batch_norm(
    low: Lowering,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value | None,
    variance: Value | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn: bool = False,
) -> Value:
    if training:
        raise OperatorError("batch norm in training; call module.eval() first")
    return _batch_norm(low, x, weight, bias, mean, variance, eps)


@aten("_native_batch_norm_legit_functional", "_native_batch_norm_legit")
def batch_norm_training(low: Lowering, x: Value, *given: Any) -> list[Value | None]:
    """By the batch's own mean and variance, and what these make of the running ones."""
    weight, bias, *running, training, momentum, eps = given
    if not training:
        made = _batch_norm(low, x, weight, bias, running[0], running[1], eps)
        return [made, None, None, *running]
    axes = tuple(i for i in range(len(x.shape)) if i != 1)
    mean = low.reduce_mean(x, axes=axes, keepdims=1)
    apart = low.sub(x, mean)
    variance = low.reduce_mean(low.mul(apart, apart), axes=axes, keepdims=1)
    root = low.sqrt(low.affine(variance, shift=float(eps)))
    result = low.div(apart, root)
    if weight is not None:
        result = low.mul(result, _by_channel(low, weight, len(x.shape)))
    if bias is not None:
        result = low.add(result, _by_channel(low, bias, len(x.shape)))
    flat = [low.reshape(v, (x.shape[1],)) for v in (mean, variance, root)]
    inverse = low.div(low.number(1.0), flat[2])
    if not running:
        return [result, flat[0], inverse]
    count = math.prod(low.known(x.shape[i], "batch norm") for i in axes)
    unbiased = low.affine(flat[1], scale=count / max(count - 1, 1))
    shares = float(momentum), 1 - float(momentum)
    moved = [
        low.add(low.affine(new, scale=shares[0]), low.affine(old, scale=shares[1]))
        for new, old in zip((flat[0], unbiased), running, strict=True)
    ]
    return [result, flat[0], inverse, *moved]


@aten("_native_batch_norm_legit_no_training")
def native_batch_norm(
    low: Lowering,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value,
    variance: Value,
    momentum: float,
    eps: float,
) -> list[Value | None]:
    return [_batch_norm(low, x, weight, bias, mean, variance, eps), None, None]


def _moments(low: Lowering, x: Value, axes: tuple[int, ...], eps: float) -> tuple[Value, Value]:
    """The mean over some axes, and 1 / the standard deviation; both keep these as sizes of 1."""
    mean = low.reduce_mean(x, axes=axes, keepdims=1)
    apart = low.sub(x, mean)
    spread = low.reduce_mean(low.mul(apart, apart), axes=axes, keepdims=1)
    return mean, low.rsqrt(low.affine(spread, shift=float(eps)))


def _ones(low: Lowering, size: int) -> Value:
    return low.known_array("ones", np.ones(size, np.float32))


def _norm(
    low: Lowering, op: str, x: Value, count: int, vectors: Sequence[Value | None], eps: float
) -> Value:
    """Over the last ``count`` dimensions, which are seen as one."""
    if eps < 0 and op == "layer_norm":  # which the op does not know
        axes = tuple(range(len(x.shape) - count, len(x.shape)))
        mean, scale = _moments(low, x, axes, eps)
        made = low.mul(low.sub(x, mean), scale)
        weight, bias = (*vectors, None)[:2]
        made = made if weight is None else low.mul(made, weight)
        return made if bias is None else low.add(made, bias)
    tail = [low.known(d, op) for d in x.shape[len(x.shape) - count :]]
    size = int(np.prod(tail))
    flat = low.reshape(x, (*x.shape[: len(x.shape) - count], size))
    given = [low.reshape(v, (size,)) if v is not None else None for v in vectors]
    given[0] = given[0] or _ones(low, size)
    while given and given[-1] is None:
        given.pop()
    return low.reshape(low.emit(op, flat, *given, eps=float(eps)), x.shape)


@aten("layer_norm")
def layer_norm(
    low: Lowering,
    x: Value,
    shape: Sequence[int],
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
    cudnn: bool = True,
) -> Value:
    return _norm(low, "layer_norm", x, len(shape), (weight, bias), eps)


@aten("native_layer_norm")
def native_layer_norm(
    low: Lowering,
    x: Value,
    shape: Sequence[int],
    weight: Value | None,
    bias: Value | None,
    eps: float,
) -> list[Value | None]:
    axes = tuple(range(len(x.shape) - len(shape), len(x.shape)))
    moments = _moments(low, x, axes, eps) if low.used & {1, 2} else (None, None)
    return [_norm(low, "layer_norm", x, len(shape), (weight, bias), eps), *moments]


@aten("rms_norm")
def rms_norm(
    low: Lowering,
    x: Value,
    shape: Sequence[int],
    weight: Value | None = None,
    eps: float | None = None,
) -> Value:
    smallest = float(np.finfo(np.float32).eps)
    return _norm(low, "rms_norm", x, len(shape), (weight,), smallest if eps is None else eps)


@aten("group_norm")
def group_norm(
    low: Lowering,
    x: Value,
    groups: int,
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
    cudnn: bool = True,
) -> Value:
    shape = x.shape
    channels = low.known(shape[1], "group norm")
    if eps < 0 or any(isinstance(d, Sym) for d in shape[2:]):  # which layer_norm does not know
        split = low.reshape(x, (shape[0], groups, channels // groups, *shape[2:]))
        mean, scale = _moments(low, split, tuple(range(2, len(split.shape))), eps)
        normal = low.reshape(low.mul(low.sub(split, mean), scale), shape)
    else:
        sizes = [low.known(d, "group norm") for d in shape[2:]]
        size = channels // groups * int(np.prod(sizes, dtype=np.int64))
        split = low.reshape(x, (shape[0], groups, size))
        normal = low.reshape(low.emit("layer_norm", split, _ones(low, size), eps=float(eps)), shape)
    if weight is not None:
        normal = low.mul(normal, _by_channel(low, weight, len(shape)))
    return normal if bias is None else low.add(normal, _by_channel(low, bias, len(shape)))


@aten("native_group_norm")
def native_group_norm(
    low: Lowering,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    batch: object,
    channels: int,
    size: object,
    groups: int,
    eps: float,
) -> list[Value | None]:
    return [group_norm(low, x, groups, weight, bias, eps), None, None]


@aten("instance_norm")
def instance_norm(
    low: Lowering,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value | None,
    variance: Value | None,
    use_input_statistics: bool,
    momentum: float,
    eps: float,
    cudnn: bool = False,
) -> Value:
    if not use_input_statistics:
        return _batch_norm(low, x, weight, bias, mean, variance, eps)
    return group_norm(low, x, low.known(x.shape[1], "instance norm"), weight, bias, eps)
