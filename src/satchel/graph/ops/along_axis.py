"""Ops that walk along one axis: put by number, sort, and join each element with those before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.graph.ops.elementwise import WHOLE
from satchel.graph.ops.registry import Arrays, Attrs, Types, check_rows, define, require
from satchel.graph.types import DType, TensorType, attr_int, attr_ints, attr_str

Array = NDArray[Any]
NUMBERS = (DType.f32, *WHOLE)


def _axis(op: str, types: Types, attrs: Attrs) -> int:
    x = types[0]
    assert x
    axis = attr_int(attrs, "axis")
    require(0 <= axis < len(x.shape), op, f"no axis {axis}", types)
    require(x.dtype in NUMBERS, op, "x must be f32, i32 or i64", types)
    return axis


JOINS: dict[str, Callable[[Array, Array], Array] | None] = {
    "set": None,
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}


@define("scatter", 3, "axis", "kind")
class Scatter:
    """x, with out[i][numbers[i][j][k]][k] = source[i][j][k] for axis 1, and so on, in order.

    ``kind`` says what becomes of what was there: it is replaced (``set``), or joined with the
    source by ``add``, ``mul``, ``max`` or ``min``.
    """

    @staticmethod
    def types(types: Types, attrs: Attrs) -> list[TensorType]:
        x, numbers, source = types
        assert x and numbers and source
        axis = _axis("scatter", types, attrs)
        fits = numbers.dtype == DType.i32 and len(numbers.shape) == len(x.shape)
        fits = fits and numbers.shape == source.shape and source.dtype == x.dtype
        require(fits, "scatter", "need i32 numbers and a source of the same shape", types)
        for i, (have, want) in enumerate(zip(x.shape, numbers.shape, strict=True)):
            known = isinstance(have, int) and isinstance(want, int) and want <= have
            require(i == axis or have == want or known, "scatter", "too many numbers", types)
        kind = attr_str(attrs, "kind")
        require(kind in JOINS, "scatter", f"there is no kind {kind!r}")
        return [x]

    @staticmethod
    def run(arrays: Arrays, attrs: Attrs) -> list[Array]:
        x, numbers, source = arrays
        axis = attr_int(attrs, "axis")
        check_rows(numbers, x.shape[axis], "entry")
        places: list[Array] = [np.asarray(p) for p in np.indices(numbers.shape)]
        places[axis] = numbers
        out = x.copy()
        join = JOINS[attr_str(attrs, "kind")]
        # In the order of the axis, so that floats add up and the last one wins as on any machine.
        for i in range(numbers.shape[axis]):
            one = (slice(None),) * axis + (i,)
            at = tuple(p[one] for p in places)
            out[at] = source[one] if join is None else join(out[at], source[one])
        return [out]


@define("argsort", 1, "axis", "descending")
class ArgSort:
    """The order of each line: equal ones as they come, NaN as the greatest."""

    @staticmethod
    def types(types: Types, attrs: Attrs) -> list[TensorType]:
        (x,) = types
        assert x
        _axis("argsort", types, attrs)
        attr_int(attrs, "descending", 0)
        return [TensorType(x.shape, DType.i32)]

    @staticmethod
    def run(arrays: Arrays, attrs: Attrs) -> list[Array]:
        (x,), axis = arrays, attr_int(attrs, "axis")
        if not attr_int(attrs, "descending", 0):
            return [np.argsort(x, axis=axis, kind="stable").astype(np.int32)]
        flipped = np.flip(x, axis)  # sorting it backwards keeps equal ones as they come
        order = np.flip(np.argsort(flipped, axis=axis, kind="stable"), axis)
        return [(x.shape[axis] - 1 - order).astype(np.int32)]


RUNNING: dict[str, Callable[..., Array]] = {
    "sum": np.add.accumulate,
    "prod": np.multiply.accumulate,
    "max": np.maximum.accumulate,
    "min": np.minimum.accumulate,
}


@define("cumulate", 1, "axis", "kind")
class Cumulate:
    """Each element joined with all before it along an axis: sum, prod, max or min."""

    @staticmethod
    def types(types: Types, attrs: Attrs) -> list[TensorType]:
        (x,) = types
        assert x
        _axis("cumulate", types, attrs)
        kind = attr_str(attrs, "kind")
        require(kind in RUNNING, "cumulate", f"there is no kind {kind!r}")
        return [x]

    @staticmethod
    def run(arrays: Arrays, attrs: Attrs) -> list[Array]:
        (x,) = arrays
        wide = x.astype(np.float64) if x.dtype.kind == "f" else x
        made = RUNNING[attr_str(attrs, "kind")](
            wide, axis=attr_int(attrs, "axis"), dtype=wide.dtype
        )
        return [made.astype(x.dtype)]


@define("count", 1, "axis", "steps")
class Count:
    """0, 1, 2, …: as many as an axis of x has entries, of which only the number counts.

    With ``steps``, three numbers for each: as many as these make of it, ``(a * size + b) // c``.
    """

    @staticmethod
    def types(types: Types, attrs: Attrs) -> list[TensorType]:
        (x,) = types
        assert x
        axis = attr_int(attrs, "axis")
        require(0 <= axis < len(x.shape), "count", f"no axis {axis}", types)
        size = x.shape[axis]
        for times, plus, over in _size_steps(attrs):
            size = (size * times + plus) // over
        return [TensorType((size,), DType.i32)]

    @staticmethod
    def run(arrays: Arrays, attrs: Attrs) -> list[Array]:
        size = arrays[0].shape[attr_int(attrs, "axis")]
        for times, plus, over in _size_steps(attrs):
            size = (size * times + plus) // over
        return [np.arange(size, dtype=np.int32)]


def _size_steps(attrs: Attrs) -> list[tuple[int, int, int]]:
    flat = attr_ints(attrs, "steps") if "steps" in attrs else ()
    steps = [(flat[i], flat[i + 1], flat[i + 2]) for i in range(0, len(flat) - 2, 3)]
    fits = 3 * len(steps) == len(flat) and all(a >= 1 and c >= 1 for a, _, c in steps)
    require(fits, "count", f"bad steps {flat}")
    return steps
