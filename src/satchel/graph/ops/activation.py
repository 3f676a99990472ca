"""The activation functions that a layer can apply to its own result."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.graph.ops.elementwise import erf, gelu_tanh, hardsigmoid, sigmoid
from satchel.graph.ops.registry import Attrs, require
from satchel.graph.types import attr_str

Array = NDArray[Any]


# By the name that is the attribute ``activation`` of conv2d, linear and their like. The native
# core numbers them in this order.
ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "none": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    "hardswish": lambda x: x * hardsigmoid(x),
    "hardsigmoid": hardsigmoid,
    "silu": lambda x: x * sigmoid(x),
    "gelu": lambda x: 0.5 * x * (1 + erf(x / math.sqrt(2))),
    "gelu_tanh": gelu_tanh,
    "sigmoid": sigmoid,
    "tanh": np.tanh,
}


def check_activation(op: str, attrs: Attrs) -> None:
    name = attr_str(attrs, "activation", "none")
    require(name in ACTIVATIONS, op, f"there is no activation {name!r}")


def activate(x: Array, attrs: Attrs) -> Array:
    """The node's activation of its float result."""
    name = attr_str(attrs, "activation", "none")
    if name == "none":
        return x
    # Through f64, as the ops of the same names do.
    return ACTIVATIONS[name](x.astype(np.float64)).astype(np.float32)
