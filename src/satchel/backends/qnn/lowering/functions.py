"""Layers, functions and moves as the NPU has them."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from satchel.backends.qnn.decompositions import affine, gelu_by_tanh, silu
from satchel.backends.qnn.hadamard import hadamard_weight, layer_sizes
from satchel.backends.qnn.halves import FLOATS
from satchel.backends.qnn.lowering.state import LOWERINGS, Attributes, Inputs, Lowering
from satchel.backends.qnn.ops import MOST_DIMENSIONS, bounded
from satchel.graph.ir import Value, attr_float, attr_int, attr_ints, attr_str, largest

# Where a layer's sums are cut off, their codes end too: no op of its own.
_CUT_OFF = frozenset({"none", "relu", "relu6"})


def _layer(op: str) -> Callable[[Lowering, Inputs, Attributes], Value]:
    def lowered(to: Lowering, inputs: Inputs, attrs: Attributes) -> Value:
        activation = attr_str(attrs, "activation", "none")
        # Rounding row by row is the CPU's: all values have fixed ranges here.
        rest = {k: v for k, v in attrs.items() if k not in ("activation", "activations")}
        count = 3 if to.fuse_bias else 2
        cuts = activation in _CUT_OFF and len(inputs) <= count and to.bits != FLOATS
        cut = {"activation": activation} if cuts else {}
        out = to.b.node(op, *inputs[:count], **rest, **cut)
        if len(inputs) > count:
            out = to.b.node("add", out, inputs[count])
        if cut or activation == "none":
            return out
        if activation == "relu6":
            return to.b.node("clamp", out, low=0.0, high=6.0)
        return to.place(activation, [out], {})

    return lowered


def _layer_norm(to: Lowering, inputs: Inputs, attrs: Attributes) -> Value:
    if len(inputs) == 3 or to.bits == 8:
        return to.b.node("layer_norm", *inputs, **attrs)
    # Without a shift, the chip would round the gain to 8 bits: it is multiplied afterwards.
    ones = to.b.constant("ones", np.ones(largest(inputs[0].shape)[-1], np.float32))
    return to.b.node("mul", to.b.node("layer_norm", inputs[0], ones, **attrs), inputs[1])


def _affine(to: Lowering, inputs: Inputs, attrs: Attributes) -> Value:
    given = [attr_float(attrs, "scale", 1.0), attr_float(attrs, "shift", 0.0)]
    scale, shift = bounded(np.array(given)).tolist()
    return affine(to.b, inputs[0], scale, shift)


def _silu(to: Lowering, inputs: Inputs, _: Attributes) -> Value:
    return silu(to.b, inputs[0])


def _gelu_tanh(to: Lowering, inputs: Inputs, _: Attributes) -> Value:
    """In 8 bits the chip's own gelu is nearer: both differ by less than a step."""
    return to.b.node("gelu", inputs[0]) if to.bits == 8 else gelu_by_tanh(to.b, inputs[0])


def _gated(function: str) -> Callable[[Lowering, Inputs, Attributes], Value]:
    def lowered(to: Lowering, inputs: Inputs, _: Attributes) -> Value:
        gate, up = inputs
        return to.b.node("mul", to.place(function, [gate], {}), up)

    return lowered


def _reshape(to: Lowering, inputs: Inputs, attrs: Attributes) -> Value:
    (x,) = inputs
    sizes = enumerate(attr_ints(attrs, "shape"))
    return to.reshape(x, tuple(largest(x.shape)[i] if d == 0 else d for i, d in sizes))


def _transpose(to: Lowering, inputs: Inputs, attrs: Attributes) -> Value:
    """With as few dimensions as it can be said in: the chip takes five."""
    (x,), perm = inputs, attr_ints(attrs, "perm")
    if len(perm) <= MOST_DIMENSIONS:
        return to.b.node("transpose", x, perm=perm)
    shape = largest(x.shape)
    groups = _moved_together([axis for axis in perm if shape[axis] != 1])
    order = sorted(groups)
    joined = to.reshape(x, tuple(prod(shape[a] for a in g) for g in order))
    transposed = to.b.node("transpose", joined, perm=tuple(order.index(g) for g in groups))
    return to.reshape(transposed, tuple(shape[axis] for axis in perm))


def _hadamard(to: Lowering, inputs: Inputs, attrs: Attributes) -> Value:
    """A layer for each part of the block's size; the next part's axis is brought to the end."""
    (x,), block = inputs, attr_int(attrs, "block")
    sizes, shape = layer_sizes(block), largest(x.shape)
    if len(sizes) == 1 and shape[-1] == block:
        return to.b.node("linear", x, hadamard_weight(block))
    out = to.reshape(x, (prod(shape) // block, *sizes))
    for size in reversed(sizes):
        out = to.b.node("linear", out, hadamard_weight(size))
        if len(sizes) > 1:
            out = to.b.node("transpose", out, perm=(0, len(sizes), *range(1, len(sizes))))
    return to.reshape(out, shape)


def _moved_together(perm: list[int]) -> list[tuple[int, ...]]:
    """Axes that stay neighbours, each run of them as one.

    >>> _moved_together([0, 2, 3, 1])
    [(0,), (2, 3), (1,)]
    """
    groups: list[tuple[int, ...]] = []
    for axis in perm:
        if groups and groups[-1][-1] == axis - 1:
            groups[-1] = (*groups[-1], axis)
        else:
            groups.append((axis,))
    return groups


LOWERINGS |= {
    "linear": _layer("linear"),
    "conv2d": _layer("conv2d"),
    "conv_transpose2d": _layer("conv_transpose2d"),
    "layer_norm": _layer_norm,
    "affine": _affine,
    "silu": _silu,
    "gelu_tanh": _gelu_tanh,
    "silu_mul": _gated("silu"),
    "gelu_tanh_mul": _gated("gelu_tanh"),
    "reshape": _reshape,
    "transpose": _transpose,
    "hadamard": _hadamard,
}
