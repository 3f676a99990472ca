"""Functions that the NPU has no op of its own for, made of those that it has."""

from __future__ import annotations

from satchel.graph.builder import GraphBuilder
from satchel.graph.ir import Value


def affine(b: GraphBuilder, x: Value, scale: float, shift: float) -> Value:
    """x * scale + shift, as one node for each of the two that does something."""
    if scale != 1:
        x = b.node("affine", x, scale=scale)
    return b.node("affine", x, shift=shift) if shift else x


def silu(b: GraphBuilder, x: Value) -> Value:
    return b.node("mul", x, b.node("sigmoid", x))


def gelu_by_tanh(b: GraphBuilder, x: Value) -> Value:
    """x * (1 + tanh(0.798 * x * (1 + 0.0447 x²))) / 2: the chip's own gelu is the other."""
    inner = b.affine(b.affine(b.mul(x, x), scale=0.044715), shift=1.0)
    bent = b.tanh(b.affine(b.mul(x, inner), scale=(2 / 3.141592653589793) ** 0.5))
    half = b.affine(b.affine(bent, scale=0.5), shift=0.5)
    return b.node("mul", x, half)
