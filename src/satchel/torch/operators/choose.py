"""What a mask chooses: as many results as it has true entries, a size that only a run finds out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from operator import mul
from typing import Any

import numpy as np

from satchel.graph.ir import Dim, DType, Sym, Value, largest
from satchel.graph.ops.elementwise import broadcast
from satchel.torch.lowering import Lowering
from satchel.torch.operators.registry import OperatorError, aten, of_namespace

_OF_MASKS = ("nonzero", "places_of", "masked_select")


def most_chosen(name: str, arguments: Sequence[Any]) -> int | None:
    """How many an operator can choose at most; None if the number of its results is known."""
    if name in _OF_MASKS or (name == "where" and len(arguments) == 1):
        shapes = [largest(v.shape) for v in arguments if isinstance(v, Value)]
        return math.prod(np.broadcast_shapes(*shapes))
    if name in ("nms", "nms_of_kinds"):
        return largest(arguments[0].shape)[0]
    if name in ("index", "_unsafe_index"):
        masks = [v for v in arguments[1] if v is not None and v.dtype == DType.boolean]
        return math.prod(largest(masks[0].shape)) if masks else None
    return None


def known_count(name: str, arguments: Sequence[Any]) -> int | None:
    """How many a mask chooses that is a constant; None where only a run finds it out."""
    if name in ("nonzero", "places_of", "where"):
        mask = arguments[0]
    elif name in ("index", "_unsafe_index"):
        mask = next(v for v in arguments[1] if v is not None and v.dtype == DType.boolean)
    else:
        return None
    return None if mask.constant is None else int(np.count_nonzero(mask.constant))


def first_places(low: Lowering, size: Dim, most: int, count: Dim) -> Value:
    """The first places of those that there are, i32 [count]."""
    known = min(most, size.maximum) if isinstance(size, Sym) else min(most, size)
    places = low.constant(np.arange(known, dtype=np.int32), "places")
    return chosen_places(low, low.compare(places, low.size(size), kind="lt"), count)


def chosen_places(low: Lowering, mask: Value, size: Dim) -> Value:
    """Where a mask holds, counted over all of its entries, i32 [size]. Asked twice, it is one."""
    if mask.constant is not None and not isinstance(size, Sym):
        return low.constant(np.flatnonzero(mask.constant).astype(np.int32), "places")
    if not isinstance(size, Sym):
        raise OperatorError("a mask whose count torch knows")
    for other, places in low.chosen:
        if other is mask or _made_alike(low, other, mask):
            return places
    if any(places.shape == (size,) for _, places in low.chosen):
        raise OperatorError("two masks of which torch says that they choose as many")
    flat = low.reshape(low.cast(mask, DType.boolean), (reduce(mul, mask.shape, 1),))
    if flat.constant is not None:  # its places are known, but not to torch's sizes
        first = low.symbolic or low.builder.graph.inputs[0]
        flat = low.expand(flat, flat.shape, first)
    places = low.builder.node("nonzero", flat, size=size.name)
    low.chosen.append((mask, places))
    return places


def _made_alike(low: Lowering, one: Value, other: Value) -> bool:
    """Whether both are the same function of the same values, as a mask that is written twice."""
    makers = [n for n in low.builder.graph.nodes if one in n.outputs or other in n.outputs]
    if len(makers) != 2:
        return False
    a, b = makers
    return a.op == b.op and a.attrs == b.attrs and a.inputs == b.inputs


def chosen_columns(low: Lowering, mask: Value, size: Dim) -> list[Value]:
    """The same as a number for each dimension of the mask, i32 [size]."""
    places = chosen_places(low, mask, size)
    if len(mask.shape) == 1:
        return [places]
    columns = []
    for axis, d in enumerate(mask.shape):
        own = places
        for behind in mask.shape[axis + 1 :]:
            own = low.integer(own, low.operand(behind, DType.i32), kind="floor_div")
        if axis > 0:
            own = low.integer(own, low.operand(d, DType.i32), kind="remainder")
        columns.append(own)
    return columns


@of_namespace("satchel")("places_of")
@aten("nonzero")
def nonzero(low: Lowering, x: Value) -> Value:
    size = low.shape[0]
    if not x.shape:
        raise OperatorError("the places of a single number, which have no dimensions")
    columns = [low.cast(c, DType.i64) for c in chosen_columns(low, x, size)]
    return low.concat([low.reshape(c, (size, 1)) for c in columns], 1)


@aten("where.default")
def where_it_holds(low: Lowering, mask: Value) -> list[Value]:
    return [low.cast(c, DType.i64) for c in chosen_columns(low, mask, low.shape[0])]


@aten("masked_select")
def masked_select(low: Lowering, x: Value, mask: Value) -> Value:
    shape = broadcast(x.shape, mask.shape, "masked_select")
    whole = low.expand(mask, shape, x)
    places = chosen_places(low, whole, low.shape[0])
    flat = low.emit("reshape", low.expand(x, shape, mask), shape=(-1,))
    return low.emit("take", flat, places, axis=0)


@of_namespace("satchel")("nms_of_kinds")
def nms_of_kinds(
    low: Lowering, boxes: Value, scores: Value, kinds: Value, threshold: float
) -> Value:
    column = low.reshape(low.floats(kinds), (*kinds.shape, 1))
    return nms(low, low.concat([boxes, column], 1), scores, threshold)


@of_namespace("torchvision")("nms")
def nms(low: Lowering, boxes: Value, scores: Value, threshold: float) -> Value:
    order = low.argsort(scores, axis=0, descending=1)
    keeps = low.emit("nms", low.emit("take", boxes, order, axis=0), threshold=threshold)
    places = chosen_places(low, keeps, low.shape[0])
    return low.cast(low.emit("take", order, places, axis=0), DType.i64)


def without_masks(low: Lowering, numbers: Sequence[Value | None]) -> list[Value | None]:
    """Indices of which masks are numbers: a column for each of a mask's dimensions."""
    found: list[Value | None] = []
    sizes: list[Dim] = [d for d in low.shape if isinstance(d, Sym) and d.name.startswith("u")]
    for each in numbers:
        if each is None or each.dtype != DType.boolean:
            found.append(each)
        elif each.constant is not None:
            found += chosen_columns(low, each, int(np.count_nonzero(each.constant)))
        elif not sizes:
            raise OperatorError("picking by a mask, whose count is not known")
        else:
            found += chosen_columns(low, each, sizes[0])
    return found
