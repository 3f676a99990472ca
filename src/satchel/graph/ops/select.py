"""Ops that compare, choose, pick by number, pad and repeat."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.graph.ops.elementwise import WHOLE, broadcast
from satchel.graph.ops.registry import Arrays, Attrs, Trait, Types, check_rows, define, require
from satchel.graph.types import (
    Dim,
    DType,
    TensorType,
    attr_float,
    attr_int,
    attr_ints,
    attr_str,
)

Array = NDArray[Any]
NUMBERS = (DType.f32, *WHOLE)

COMPARISONS: dict[str, Callable[[Array, Array], Array]] = {
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}


@define("compare", 2, "kind", traits=[Trait.elementwise])
class Compare:
    """Whether a is less than (lt), at most (le), … b, element by element, with broadcasting."""

    @staticmethod
    def types(types: Types, attrs: Attrs) -> list[TensorType]:
        a, b = types
        assert a and b
        same = a.dtype == b.dtype and a.dtype in NUMBERS
        require(same, "compare", "both inputs must be f32, i32 or i64", types)
        kind = attr_str(attrs, "kind")
        require(kind in COMPARISONS, "compare", f"there is no comparison {kind!r}")
        return [TensorType(broadcast(a.shape, b.shape, "compare"), DType.boolean)]

    @staticmethod
    def run(arrays: Arrays, attrs: Attrs) -> list[Array]:
        return [COMPARISONS[attr_str(attrs, "kind")](arrays[0], arrays[1])]


@define("where", 3, traits=[Trait.elementwise])
class Where:
    """a where the condition holds, else b; all three broadcast."""

    @staticmethod
    def types(types: Types, _attrs: Attrs) -> list[TensorType]:
        condition, a, b = types
        assert condition and a and b
        require(condition.dtype == DType.boolean, "where", "the condition must be bool", types)
        same = a.dtype == b.dtype and a.dtype in NUMBERS
        require(same, "where", "both choices must be f32, i32 or i64", types)
        shape = broadcast(condition.shape, broadcast(a.shape, b.shape, "where"), "where")
        return [TensorType(shape, a.dtype)]

    @staticmethod
    def run(arrays: Arrays, _attrs: Attrs) -> list[Array]:
        return [np.where(*arrays)]


@define("expand", (1, 2), "shape", traits=[Trait.keeps_codes])
class Expand:
    """Repeat along dimensions of size 1, or new ones in front, up to a shape.

    In ``shape``, -1 - k stands for dimension k of the second input, of which only the shape counts.
    """

    @staticmethod
    def types(types: Types, attrs: Attrs) -> list[TensorType]:
        x = types[0]
        like = types[1] if len(types) > 1 else None
        assert x
        shape: list[Dim] = []
        for d in attr_ints(attrs, "shape"):
            fits = d > 0 or (d < 0 and like is not None and -1 - d < len(like.shape))
            require(fits, "expand", f"bad shape {attrs['shape']}", types)
            shape.append(d if d > 0 or like is None else like.shape[-1 - d])
        wanted = tuple(shape)
        require(broadcast(x.shape, wanted, "expand") == wanted, "expand", "does not fit", types)
        return [TensorType(wanted, x.dtype)]

    @staticmethod
    def run(arrays: Arrays, attrs: Attrs) -> list[Array]:
        shape = [d if d > 0 else arrays[1].shape[-1 - d] for d in attr_ints(attrs, "shape")]
        return [np.broadcast_to(arrays[0], shape).copy()]


@define("take", 2, "axis", traits=[Trait.moves, Trait.keeps_codes, Trait.one_axis])
class Take:
    """Entries of one axis, by number."""

    @staticmethod
    def types(types: Types, attrs: Attrs) -> list[TensorType]:
        x, numbers = types
        assert x and numbers
        axis = attr_int(attrs, "axis")
        require(0 <= axis < len(x.shape), "take", f"no axis {axis}", types)
        fits = len(numbers.shape) == 1 and numbers.dtype == DType.i32
        require(fits, "take", "the numbers must be i32 [n]", types)
        return [TensorType((*x.shape[:axis], *numbers.shape, *x.shape[axis + 1 :]), x.dtype)]

    @staticmethod
    def run(arrays: Arrays, attrs: Attrs) -> list[Array]:
        axis = attr_int(attrs, "axis")
        check_rows(arrays[1], arrays[0].shape[axis], "entry")
        return [np.take(arrays[0], arrays[1], axis=axis)]


@define("gather", 2, "axis")
class Gather:
    """out[i][j][k] = x[i][numbers[i][j][k]][k] for axis 1, and so on."""

    @staticmethod
    def types(types: Types, attrs: Attrs) -> list[TensorType]:
        x, numbers = types
        assert x and numbers
        axis = attr_int(attrs, "axis")
        require(0 <= axis < len(x.shape), "gather", f"no axis {axis}", types)
        fits = len(numbers.shape) == len(x.shape) and numbers.dtype == DType.i32
        require(fits, "gather", "the numbers must be i32 of x's rank", types)
        for i, (have, want) in enumerate(zip(x.shape, numbers.shape, strict=True)):
            known = isinstance(have, int) and isinstance(want, int) and want <= have
            require(i == axis or have == want or known, "gather", "too many numbers", types)
        return [TensorType(numbers.shape, x.dtype)]

    @staticmethod
    def run(arrays: Arrays, attrs: Attrs) -> list[Array]:
        axis = attr_int(attrs, "axis")
        x, numbers = arrays
        check_rows(numbers, x.shape[axis], "entry")
        sizes = [slice(None) if i == axis else slice(n) for i, n in enumerate(numbers.shape)]
        return [np.take_along_axis(x[tuple(sizes)], numbers, axis)]


@define("pad", 1, "before", "after", "value", traits=[Trait.keeps_codes])
class Pad:
    """Put a number around: ``before`` and ``after`` each axis."""

    @staticmethod
    def types(types: Types, attrs: Attrs) -> list[TensorType]:
        (x,) = types
        assert x
        before, after = attr_ints(attrs, "before"), attr_ints(attrs, "after")
        rank = len(x.shape)
        fits = len(before) == len(after) == rank and min((*before, *after), default=0) >= 0
        require(fits, "pad", f"bad padding {before} and {after}", types)
        require(x.dtype in (*NUMBERS, DType.u8), "pad", "x must be f32, i32 or u8", types)
        value = attr_float(attrs, "value", 0.0)
        limit = 255 if x.dtype == DType.u8 else 2**31 - 1
        whole = x.dtype == DType.f32 or (value == int(value) and abs(value) <= limit)
        whole = whole and (x.dtype != DType.u8 or value >= 0)
        require(whole, "pad", f"{value} is no {x.dtype.name}", types)
        shape: list[Dim] = []
        for size, first, last in zip(x.shape, before, after, strict=True):
            shape.append(size + (first + last))
        return [TensorType(tuple(shape), x.dtype)]

    @staticmethod
    def run(arrays: Arrays, attrs: Attrs) -> list[Array]:
        widths = list(zip(attr_ints(attrs, "before"), attr_ints(attrs, "after"), strict=True))
        value = attr_float(attrs, "value", 0.0)
        if not widths:
            return [arrays[0].copy()]
        fill = arrays[0].dtype.type(value)
        return [np.pad(arrays[0], widths, constant_values=fill)]


@define("argmax", 1, "axis", "keepdims")
class ArgMax:
    """Where the largest number along an axis is, the first of equals; NaN counts as largest."""

    @staticmethod
    def types(types: Types, attrs: Attrs) -> list[TensorType]:
        (x,) = types
        assert x
        axis, keep = attr_int(attrs, "axis"), attr_int(attrs, "keepdims", 0)
        require(x.dtype == DType.f32, "argmax", "x must be f32", types)
        require(0 <= axis < len(x.shape), "argmax", f"no axis {axis}", types)
        kept = (1,) if keep else ()
        return [TensorType((*x.shape[:axis], *kept, *x.shape[axis + 1 :]), DType.i32)]

    @staticmethod
    def run(arrays: Arrays, attrs: Attrs) -> list[Array]:
        keep = bool(attr_int(attrs, "keepdims", 0))
        found = np.argmax(arrays[0], axis=attr_int(attrs, "axis"), keepdims=keep)
        return [np.asarray(found, np.int32)]
