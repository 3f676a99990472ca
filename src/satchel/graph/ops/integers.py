"""Functions of two whole numbers that floats do not have, or do not have exactly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.errors import ExecutionError
from satchel.graph.ops.elementwise import WHOLE, broadcast
from satchel.graph.ops.registry import Arrays, Attrs, Types, define, require
from satchel.graph.types import TensorType, attr_str

Array = NDArray[Any]


def _shift_left(a: Array, b: Array) -> Array:
    """Bits that are pushed out are lost; so are all where the shift is too far or negative."""
    bits = 8 * a.dtype.itemsize
    inside = (b >= 0) & (b < bits)
    shifted: Array = np.left_shift(a, np.where(inside, b, 0).astype(a.dtype))
    result: Array = shifted * inside.astype(a.dtype)
    return result


def _shift_right(a: Array, b: Array) -> Array:
    """The sign comes in from the left."""
    bits = 8 * a.dtype.itemsize
    far = (b < 0) | (b >= bits)
    shifted: Array = np.right_shift(a, np.where(far, bits - 1, b).astype(a.dtype))
    return shifted


def _truncated(a: Array, b: Array) -> Array:
    down: Array = np.floor_divide(a, b)
    opposite: Array = (np.fmod(a, b) != 0) & ((a < 0) != (b < 0))
    return (down + opposite).astype(a.dtype)


def _power(a: Array, b: Array) -> Array:
    """Of a negative exponent, what is left of 1 / n as a whole number."""
    whole = np.power(a, np.maximum(b, 0))
    inverse = np.where(a == 1, 1, np.where(a == -1, 1 - 2 * (b & 1), 0))
    return np.where(b < 0, inverse, whole).astype(a.dtype)


KINDS: dict[str, Callable[[Array, Array], Array]] = {
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "shl": _shift_left,
    "shr": _shift_right,
    "pow": _power,
    "floor_div": np.floor_divide,
    "trunc_div": _truncated,
    "remainder": np.remainder,
    "fmod": np.fmod,
}
DIVISIONS = ("floor_div", "trunc_div", "remainder", "fmod")


@define("integer", 2, "kind")
class Integer:
    """A function of two whole numbers, both i32 or both i64, with broadcasting.

    Divisions round down (``floor_div``, ``remainder``) or towards zero (``trunc_div``, ``fmod``).
    """

    @staticmethod
    def types(types: Types, attrs: Attrs) -> list[TensorType]:
        a, b = types
        assert a and b
        same = a.dtype == b.dtype and a.dtype in WHOLE
        require(same, "integer", "both inputs must be i32 or i64", types)
        kind = attr_str(attrs, "kind")
        require(kind in KINDS, "integer", f"there is no function {kind!r}")
        return [TensorType(broadcast(a.shape, b.shape, "integer"), a.dtype)]

    @staticmethod
    def run(arrays: Arrays, attrs: Attrs) -> list[Array]:
        kind = attr_str(attrs, "kind")
        if kind in DIVISIONS and not arrays[1].all():
            raise ExecutionError("a whole number is divided by zero")
        with np.errstate(over="ignore"):
            return [np.asarray(KINDS[kind](arrays[0], arrays[1]))]
