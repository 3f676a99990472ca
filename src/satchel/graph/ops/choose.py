"""Ops that choose some of what there is: where a mask holds, boxes that do not overlap."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.graph.ops.registry import Arrays, Attrs, Types, define, require
from satchel.graph.types import DType, Sym, TensorType, attr_float, attr_str, largest

Array = NDArray[Any]


@define("nonzero", 1, "size")
class NonZero:
    """The places of what is true in a mask [n], in order, as i32.

    How many there are, from none to n, only the run tells: ``size`` is the name of the symbol that
    stands for it, which belongs to this node alone.
    """

    @staticmethod
    def types(types: Types, attrs: Attrs) -> list[TensorType]:
        (mask,) = types
        assert mask
        fits = mask.dtype == DType.boolean and len(mask.shape) == 1
        require(fits, "nonzero", "the mask must be bool [n]", types)
        name = attr_str(attrs, "size")
        require(name.isidentifier(), "nonzero", f"the size {name!r} has no plain name")
        return [TensorType((Sym(name, largest(mask.shape)[0]),), DType.i32)]

    @staticmethod
    def run(arrays: Arrays, _attrs: Attrs) -> list[Array]:
        return [np.flatnonzero(arrays[0]).astype(np.int32)]


@define("nms", 1, "threshold")
class NonMaximumSuppression:
    """Which of the boxes [n, 4] (left, top, right, bottom), the best first, are kept, bool [n].

    A box is not kept if one that is kept before it overlaps it by more than ``threshold``: what
    both cover, of what either covers. Boxes [n, 5] have a kind too, and overlap those of theirs.
    """

    @staticmethod
    def types(types: Types, attrs: Attrs) -> list[TensorType]:
        (boxes,) = types
        assert boxes
        fits = boxes.dtype == DType.f32 and len(boxes.shape) == 2 and boxes.shape[1] in (4, 5)
        require(fits, "nms", "the boxes must be f32 [n, 4] or [n, 5]", types)
        attr_float(attrs, "threshold")
        return [TensorType(boxes.shape[:1], DType.boolean)]

    @staticmethod
    def run(arrays: Arrays, attrs: Attrs) -> list[Array]:
        boxes, threshold = arrays[0], attr_float(attrs, "threshold")
        areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
        keeps = np.ones(len(boxes), bool)
        for i in range(len(boxes)):
            if keeps[i]:
                rest = slice(i + 1, None)
                sides = np.minimum(boxes[i, 2:4], boxes[rest, 2:4])
                sides = np.maximum(sides - np.maximum(boxes[i, :2], boxes[rest, :2]), 0)
                both = sides[:, 0] * sides[:, 1]
                hidden = both / (areas[i] + areas[rest] - both) > threshold
                keeps[rest] &= ~(hidden & (boxes[i, 4:] == boxes[rest, 4:]).all(1))
        return [keeps]
