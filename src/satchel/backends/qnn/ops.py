"""Which ops the NPU takes, and why it does not take the others."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.graph.ir import DType, Node, Value, attr_float, attr_int, attr_ints, largest
from satchel.graph.ops import Trait, ops_with
from satchel.graph.ops.window import Window

# Ops that the NPU runs as they are; the others are lowered to these.
PLAIN_OPS = frozenset(
    "conv2d conv_transpose2d linear matmul max_pool2d avg_pool2d layer_norm rms_norm softmax "
    "add sub mul div maximum minimum affine clamp neg abs exp sqrt "
    "relu hardswish hardsigmoid sigmoid tanh gelu "
    "reduce_mean reduce_sum reduce_max reduce_min "
    "reshape transpose slice concat take pad expand".split()
)
_LOWERED = frozenset(
    "silu gelu_tanh silu_mul gelu_tanh_mul attention_full attention_qkv hadamard".split()
)
# What reads or writes a KV cache, or is given angles by the host.
CACHED_OPS = frozenset("rope cache_write attention".split())
NPU_OPS = PLAIN_OPS | _LOWERED | CACHED_OPS

# What a language model's host does for its NPU.
HOST_OPS = {
    "embedding": "a table of all tokens is looked up, not computed with",
    "rope_table": "sines and cosines of large angles need 32 bits",
    "take_rows": "the NPU gives all rows, and the host takes those that are asked for",
    "cache_move": "the host keeps the cache",
}

LAYERS = ops_with(Trait.layer)
MOST_DIMENSIONS = 5
_MANY_DIMENSIONS = frozenset({"reshape", "transpose"})  # they can be said in fewer


# What masks write for minus infinity (the lowest float), and what it becomes: no softmax sees the
# difference. Much more, and the chip's sum with a score loses what the score says.
_ENDLESS, _FAR = 1e30, 300.0


def bounded(array: NDArray[Any]) -> NDArray[Any]:
    """An array without endless numbers.

    >>> bounded(np.array([1.0, -np.inf, -3.4e38])).tolist()
    [1.0, -300.0, -300.0]
    """
    if not array.size or float(np.abs(array).max()) <= _ENDLESS:
        return array
    return np.where(np.abs(array) > _ENDLESS, np.sign(array) * np.float32(_FAR), array)


def is_activation(value: Value) -> bool:
    return value.weight is None and value.constant is None


def supports(node: Node) -> str | None:
    """None if the NPU runs this node, or the reason why it does not."""
    if node.op not in NPU_OPS:
        return HOST_OPS.get(node.op, f"the NPU backend has no op {node.op}")
    if node.op == "attention" and any(v is None or v.state is None for v in node.inputs[1:3]):
        return "attention over keys and values that are no cache"
    if node.op in CACHED_OPS:
        return None
    if any(v.dtype != DType.f32 for v in node.outputs):
        return "whole numbers"
    passed = [v for v in (*node.inputs, *node.outputs) if v is not None and is_activation(v)]
    if any(len(v.shape) == 0 for v in passed):
        return "a number without dimensions"
    if any(len(v.shape) > MOST_DIMENSIONS for v in passed) and node.op not in _MANY_DIMENSIONS:
        return f"more than {MOST_DIMENSIONS} dimensions"
    first, *rest = node.inputs
    second = rest[0] if rest else None
    if node.op == "take":
        known = second is not None and not is_activation(second)
        return None if known else "which entries are taken must be known"
    if any(v is not None and v.dtype != DType.f32 for v in node.inputs):
        return "whole numbers"
    if node.op in LAYERS and (first is None or second is None or is_activation(second)):
        return "the weight of a layer must be known"
    if node.op in LAYERS and len(rest) > 1 and rest[1] is not None and is_activation(rest[1]):
        return "the bias of a layer must be known"
    if node.op == "conv_transpose2d":
        window = Window.of(node.op, node.attrs, overhang=True)
        if attr_int(node.attrs, "groups", 1) != 1 or window.dilation != (1, 1):
            return "a transposed convolution in groups, or with dilation"
        if min(window.padding) < 0:
            return "a transposed convolution that adds more at the end than its padding takes off"
    if node.op == "pad" and attr_float(node.attrs, "value", 0.0) != 0:
        return "the NPU backend pads with zero only"
    if node.op.endswith("_norm") and any(v is not None and is_activation(v) for v in rest):
        return "the gain and shift of a norm must be known"
    if node.op == "attention_qkv" and first is not None and largest(first.shape)[-1] == 1:
        return "attention with heads of one number, at which the compiler fails"
    if node.op == "rms_norm" and first is not None and largest(first.shape)[-1] % 1024 == 1:
        return "rows of one number more than a multiple of 1024, at which the compiler fails"
    if node.op == "max_pool2d" and Window.of(node.op, node.attrs).dilation != (1, 1):
        return "a maximum over windows with dilation"
    if node.op.startswith("reduce_") and not attr_ints(node.attrs, "axes"):
        return "a reduction over no axes"
    odd = attr_int(node.attrs, "divisor", 0) or attr_int(node.attrs, "ceil_mode", 0)
    if node.op == "avg_pool2d" and odd:
        return "a mean over windows that reach over the edge, or with a divisor of its own"
    return None
