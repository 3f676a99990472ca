"""Ops that move values and do not change them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.graph.ops.registry import Arrays, Attrs, Trait, Types, check_rows, define, require
from satchel.graph.types import (
    Dim,
    DType,
    Shape,
    Sym,
    TensorType,
    attr_int,
    attr_ints,
    same_elements,
)

Array = NDArray[Any]


@define("reshape", 1, "shape", traits=[Trait.moves, Trait.keeps_codes])
class Reshape:
    """New shape, same elements. In ``shape``, 0 keeps the input's dimension at that place.

    One dimension may be -1: what is left, where a symbolic size is joined with others or divided.
    """

    @staticmethod
    def types(types: Types, attrs: Attrs) -> list[TensorType]:
        (x,) = types
        assert x
        wanted = attr_ints(attrs, "shape")
        fits = all(d >= -1 for d in wanted) and wanted.count(-1) <= 1
        require(fits, "reshape", f"bad shape {wanted}")
        for i, d in enumerate(wanted):
            require(d != 0 or i < len(x.shape), "reshape", f"nothing to keep at {i}", types)
        rest = _rest(x, wanted, types) if -1 in wanted else 0
        shape: Shape = tuple(
            x.shape[i] if d == 0 else rest if d == -1 else d for i, d in enumerate(wanted)
        )
        same = -1 in wanted or same_elements(x.shape, shape)
        require(same, "reshape", f"{shape} has another size", types)
        return [TensorType(shape, x.dtype)]

    @staticmethod
    def run(arrays: Arrays, attrs: Attrs) -> list[Array]:
        x = arrays[0]
        wanted = attr_ints(attrs, "shape")
        return [x.reshape([x.shape[i] if d == 0 else d for i, d in enumerate(wanted)]).copy()]


def _rest(x: TensorType, wanted: tuple[int, ...], types: Types) -> Dim:
    """What is not kept, joined, and divided by the sizes that are given."""
    total: Dim = 1
    for i, d in enumerate(x.shape):
        total = total * d if i >= len(wanted) or wanted[i] != 0 else total
    over = math.prod(d for d in wanted if d > 0)
    if isinstance(total, int):
        require(total % over == 0, "reshape", f"{wanted} has another size", types)
    return total // over


@define("reshape_as", 2, "shape", traits=[Trait.moves])
class ReshapeAs:
    """New shape, same elements: -1 - k stands for dimension k of the second input, of which only
    the shape counts."""

    @staticmethod
    def types(types: Types, attrs: Attrs) -> list[TensorType]:
        x, like = types
        assert x and like
        shape: list[Dim] = []
        for d in attr_ints(attrs, "shape"):
            require(d > 0 or -1 - d in range(len(like.shape)), "reshape_as", f"bad size {d}", types)
            shape.append(d if d > 0 else like.shape[-1 - d])
        same = same_elements(x.shape, tuple(shape))
        require(same, "reshape_as", f"{shape} has another size", types)
        return [TensorType(tuple(shape), x.dtype)]

    @staticmethod
    def run(arrays: Arrays, attrs: Attrs) -> list[Array]:
        x, like = arrays
        wanted = [d if d > 0 else like.shape[-1 - d] for d in attr_ints(attrs, "shape")]
        return [x.reshape(wanted).copy()]


@define("transpose", 1, "perm", traits=[Trait.moves, Trait.keeps_codes])
class Transpose:
    @staticmethod
    def types(types: Types, attrs: Attrs) -> list[TensorType]:
        (x,) = types
        assert x
        perm = attr_ints(attrs, "perm")
        require(sorted(perm) == list(range(len(x.shape))), "transpose", f"bad perm {perm}", types)
        return [TensorType(tuple(x.shape[p] for p in perm), x.dtype)]

    @staticmethod
    def run(arrays: Arrays, attrs: Attrs) -> list[Array]:
        return [np.transpose(arrays[0], attr_ints(attrs, "perm")).copy()]


@define(
    "slice", 1, "axis", "start", "stop", traits=[Trait.moves, Trait.keeps_codes, Trait.one_axis]
)
class Slice:
    """Elements start … stop-1 of one axis, whose size must be known."""

    @staticmethod
    def types(types: Types, attrs: Attrs) -> list[TensorType]:
        (x,) = types
        assert x
        axis, start, stop = (attr_int(attrs, name) for name in ("axis", "start", "stop"))
        require(0 <= axis < len(x.shape), "slice", f"no axis {axis}", types)
        size = x.shape[axis]
        require(not isinstance(size, Sym), "slice", "the axis is symbolic", types)
        assert isinstance(size, int)
        require(0 <= start < stop <= size, "slice", f"{start}:{stop} is outside", types)
        return [TensorType((*x.shape[:axis], stop - start, *x.shape[axis + 1 :]), x.dtype)]

    @staticmethod
    def run(arrays: Arrays, attrs: Attrs) -> list[Array]:
        axis, start, stop = (attr_int(attrs, name) for name in ("axis", "start", "stop"))
        index = (slice(None),) * axis + (slice(start, stop),)
        return [arrays[0][index].copy()]


@define("concat", (1, 8), "axis", traits=[Trait.moves, Trait.one_axis])
class Concat:
    """One to eight inputs after each other along one axis."""

    @staticmethod
    def types(types: Types, attrs: Attrs) -> list[TensorType]:
        axis = attr_int(attrs, "axis")
        parts = [t for t in types if t]
        require(len(parts) == len(types), "concat", "an input is missing", types)
        first = parts[0]
        require(0 <= axis < len(first.shape), "concat", f"no axis {axis}", types)
        total: Dim = 0
        for part in parts:
            require(len(part.shape) == len(first.shape), "concat", "the ranks differ", types)
            rest = (*part.shape[:axis], *part.shape[axis + 1 :])
            same = rest == (*first.shape[:axis], *first.shape[axis + 1 :])
            require(same and part.dtype == first.dtype, "concat", "the inputs differ", types)
            total = total + part.shape[axis]
        return [TensorType((*first.shape[:axis], total, *first.shape[axis + 1 :]), first.dtype)]

    @staticmethod
    def run(arrays: Arrays, attrs: Attrs) -> list[Array]:
        return [np.concatenate(arrays, axis=attr_int(attrs, "axis"))]


@define("take_rows", 2)
class TakeRows:
    """Some entries of the first dimension, chosen at run time."""

    @staticmethod
    def types(types: Types, _attrs: Attrs) -> list[TensorType]:
        x, rows = types
        assert x and rows
        require(len(x.shape) >= 1, "take_rows", "x has no dimension", types)
        require(len(rows.shape) == 1 and rows.dtype == DType.i32, "take_rows", "bad rows", types)
        return [TensorType((*rows.shape, *x.shape[1:]), x.dtype)]

    @staticmethod
    def run(arrays: Arrays, _attrs: Attrs) -> list[Array]:
        check_rows(arrays[1], len(arrays[0]), "row")
        return [arrays[0][arrays[1]]]
