"""Operators that move numbers: views, permutations, pieces, padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from satchel.graph.ir import Dim, DType, Sym, Value
from satchel.torch.lowering import Lowering, Number, axis_of
from satchel.torch.operators.choose import first_places
from satchel.torch.operators.compare import logical_and
from satchel.torch.operators.index import index_by, size_of
from satchel.torch.operators.registry import OperatorError, aten


@aten("view", "reshape", "_unsafe_view", "unsqueeze", "squeeze", "flatten", "unflatten")
def view(low: Lowering, x: Value, *_shape: Any) -> Value:
    """Torch has worked out the shape."""
    return low.reshape(x, low.shape)


@aten("clone", "alias", "detach", "lift_fresh_copy", "contiguous")
def same(low: Lowering, x: Value, *_rest: Any, **_options: Any) -> Value:
    return x


@aten("view.dtype")
def view_bits(low: Lowering, x: Value, dtype: Any) -> Value:
    """The same bits as numbers of another type: whole ones of 8 or 16 bits come around."""
    before, after = str(low.examples[0].dtype), str(dtype)
    whole = {"torch.uint8", "torch.int8"}, {"torch.int16"}
    if before == after or any({before, after} <= kinds for kinds in whole):
        return low.cast(x, low.dtype)
    raise OperatorError(f"the bits of {before} as {after}")


@aten("_to_copy", "to", "type_as", "_assert_tensor_metadata")
def convert(low: Lowering, x: Value, *_rest: Any, **_options: Any) -> Value:
    return low.cast(x, low.dtype)


@aten("copy")
def copy(low: Lowering, target: Value, source: Value, *_rest: Any) -> Value:
    return low.expand(low.cast(source, low.dtype), low.shape, target)


@aten("permute")
def permute(low: Lowering, x: Value, order: Sequence[int]) -> Value:
    return low.transpose(x, [axis_of(a, len(x.shape)) for a in order])


@aten("transpose")
def transpose(low: Lowering, x: Value, first: int, second: int) -> Value:
    rank = len(x.shape)
    order = list(range(rank))
    a, b = axis_of(first, rank), axis_of(second, rank)
    order[a], order[b] = b, a
    return low.transpose(x, order)


@aten("t")
def swap(low: Lowering, x: Value) -> Value:
    return x if len(x.shape) < 2 else low.transpose(x, (1, 0))


@aten("expand", "expand_as", "broadcast_to")
def expand(low: Lowering, x: Value, *_shape: Any, **_options: Any) -> Value:
    like = x if any(isinstance(d, Sym) for d in x.shape) else low.symbolic
    return low.expand(x, low.shape, like)


@aten("repeat")
def repeat(low: Lowering, x: Value, times: Sequence[Dim]) -> Value:
    x = low.reshape(x, (*(1 for _ in range(len(times) - len(x.shape))), *x.shape))
    for axis, count in enumerate(times):
        if isinstance(count, Sym):
            before, size, behind = x.shape[:axis], x.shape[axis], x.shape[axis + 1 :]
            single = low.reshape(x, (*before, 1, size, *behind))
            each = low.expand(single, (*before, count, size, *behind))
            x = low.reshape(each, (*before, count * size, *behind))
        elif count != 1:
            x = low.concat([x] * count, axis)
    return x


def _bounds(low: Lowering, x: Value, axis: int, start: Any, stop: Any) -> tuple[int, int]:
    size = low.known(x.shape[axis], "a slice")
    first, last, _ = slice(start, stop).indices(size)
    return first, last


@aten("slice")
def piece(
    low: Lowering, x: Value, dim: int = 0, start: Any = None, stop: Any = None, step: int = 1
) -> Value:
    axis = axis_of(dim, len(x.shape))
    if low.shape == x.shape:
        return x
    if any(isinstance(v, Sym) for v in (x.shape[axis], start, low.shape[axis])):
        return _symbolic_piece(low, x, axis, start or 0, stop, step)
    if isinstance(stop, Sym):  # far enough to reach the end
        stop = None
    first, last = _bounds(low, x, axis, start, stop)
    if step == 1:
        return low.slice(x, axis, first, last)
    return low.take(x, np.arange(first, last, step), axis)


def _symbolic_piece(low: Lowering, x: Value, axis: int, start: Any, stop: Any, step: int) -> Value:
    """As many entries as torch says, counted from the start, which may lie before the end."""
    if isinstance(stop, int) and not start and step == 1 and low.undecided(low.shape[axis]):
        places = first_places(low, x.shape[axis], stop, low.shape[axis])
        return low.emit("take", x, places, axis=axis)
    places = low.count(low.shape[axis])
    if step != 1:
        places = low.mul(places, low.number(step, DType.i32))
    if isinstance(start, int) and start < 0:
        size = low.size(x.shape[axis])
        # A negative start that is before the first entry is the first.
        first = low.maximum(low.add(size, low.number(start, DType.i32)), low.number(0, DType.i32))
        places = low.add(places, first)
    elif isinstance(start, Sym):
        places = low.add(places, low.size(start))
    elif start:
        places = low.add(places, low.number(start, DType.i32))
    return low.emit("take", x, places, axis=axis)


@aten("slice_scatter")
def slice_scatter(
    low: Lowering,
    x: Value,
    source: Value,
    dim: int = 0,
    start: Any = None,
    stop: Any = None,
    step: int = 1,
) -> Value:
    axis = axis_of(dim, len(x.shape))
    if source.shape == x.shape:
        return source
    if any(isinstance(v, Sym) for v in (x.shape[axis], source.shape[axis], start, stop)):
        return _symbolic_slice_scatter(low, x, source, axis, start, stop, step)
    if step != 1:
        size = low.known(x.shape[axis], "a slice")
        places = np.arange(*slice(start, stop, step).indices(size))
        order = np.arange(size)
        order[places] = size + np.arange(places.size)
        return low.take(low.concat([x, low.cast(source, x.dtype)], axis), order, axis)
    first, last = _bounds(low, x, axis, start, stop)
    size = low.known(x.shape[axis], "a slice")
    parts = [low.slice(x, axis, 0, first)] if first else []
    parts.append(source)
    parts += [low.slice(x, axis, last, size)] if last < size else []
    return low.concat(parts, axis)


def _symbolic_slice_scatter(
    low: Lowering, x: Value, source: Value, axis: int, start: Any, stop: Any, step: int
) -> Value:
    """Each entry is the source's, where it lies in the slice, or remains."""
    size, none = low.operand(x.shape[axis], DType.i32), low.number(0, DType.i32)

    def place(bound: Any) -> Value:
        if isinstance(bound, Sym) or bound >= 0:
            return low.operand(bound, DType.i32)
        return low.maximum(low.add(size, low.number(bound, DType.i32)), none)

    numbers = low.count(x.shape[axis])
    behind = low.sub(numbers, place(start or 0))
    inside = low.compare(behind, none, kind="ge")
    if stop is not None and (isinstance(stop, Sym) or stop < 1 << 31):
        inside = logical_and(low, inside, low.compare(numbers, place(stop), kind="lt"))
    if step != 1:
        every = low.number(step, DType.i32)
        on_step = low.compare(low.integer(behind, every, kind="remainder"), none, kind="eq")
        inside = logical_and(low, inside, on_step)
        behind = low.integer(behind, every, kind="floor_div")
    last = low.sub(low.operand(source.shape[axis], DType.i32), low.number(1, DType.i32))
    own = low.minimum(low.maximum(behind, none), last)
    taken = low.emit("take", low.cast(source, x.dtype), own, axis=axis)
    wide = low.reshape(inside, (x.shape[axis], *(1 for _ in x.shape[axis + 1 :])))
    return low.where(wide, taken, x)


@aten("select")
def select(low: Lowering, x: Value, dim: int, number: int | Value) -> Value:
    axis = axis_of(dim, len(x.shape))
    if isinstance(number, Value):  # a number that is computed
        only = low.reshape(low.index(number), (1,))
        return low.reshape(index_by(low, x, only, axis), low.shape)
    if isinstance(x.shape[axis], Sym):
        return low.reshape(_one_of_many(low, x, axis, number), low.shape)
    place = axis_of(number, low.known(x.shape[axis], "select"))
    return low.reshape(low.slice(x, axis, place, place + 1), low.shape)


def _one_of_many(low: Lowering, x: Value, axis: int, number: int) -> Value:
    """An entry of a symbolic axis; a negative number counts from its end."""
    if number >= 0:
        return low.take(x, [number], axis)
    last = low.reduce_max(low.count(x.shape[axis]), axes=(0,), keepdims=1)
    place = low.add(last, low.number(number + 1, DType.i32))
    return low.emit("take", x, place, axis=axis)


@aten("cat", "concat")
def cat(low: Lowering, parts: Sequence[Value], dim: int = 0) -> Value:
    filled = [p for p in parts if not p.type.is_empty]  # also torch's (0,) among other ranks
    return low.concat([low.cast(p, low.dtype) for p in filled], axis_of(dim, len(filled[0].shape)))


@aten("stack")
def stack(low: Lowering, parts: Sequence[Value], dim: int = 0) -> Value:
    axis = axis_of(dim, len(parts[0].shape) + 1)
    shapes = [(*p.shape[:axis], 1, *p.shape[axis:]) for p in parts]
    return low.concat([low.reshape(p, s) for p, s in zip(parts, shapes, strict=True)], axis)


@aten("split", "split_with_sizes", "chunk", "unsafe_chunk", "tensor_split", "unsafe_split")
def split(low: Lowering, x: Value, size: Any, dim: int = 0) -> list[Value]:
    axis = axis_of(dim, len(x.shape))
    if isinstance(size, list) and size == [x.shape[axis]]:  # symbolic sizes too
        return [x]
    length = low.known(x.shape[axis], "splitting")
    if low.operator.endswith("chunk"):
        size = -(-length // size)
    elif low.operator == "tensor_split":
        raise OperatorError("tensor_split")
    sizes = [size] * -(-length // size) if isinstance(size, int) else list(size)
    parts, at = [], 0
    for one in sizes:
        parts.append(low.slice(x, axis, at, min(at + one, length)))
        at += one
    return parts


@aten("unbind")
def unbind(low: Lowering, x: Value, dim: int = 0) -> list[Value]:
    axis = axis_of(dim, len(x.shape))
    rest = (*x.shape[:axis], *x.shape[axis + 1 :])
    count = low.known(x.shape[axis], "unbind")
    return [low.reshape(low.slice(x, axis, i, i + 1), rest) for i in range(count)]


@aten("roll")
def roll(low: Lowering, x: Value, shifts: Any, dims: Any = ()) -> Value:
    if not dims:  # all entries in one row
        row = roll(low, low.reshape(x, (size_of(low, x),)), shifts, [0])
        return low.reshape(row, x.shape)
    pairs = zip(*([v] if isinstance(v, int) else v for v in (shifts, dims)), strict=True)
    for shift, dim in pairs:
        axis = axis_of(dim, len(x.shape))
        size = x.shape[axis]
        if isinstance(size, Sym):
            moved = low.sub(low.count(size), low.number(shift, DType.i32))
            places = low.integer(moved, low.size(size), kind="remainder")
            x = low.emit("take", x, places, axis=axis)
        elif shift % size:
            x = low.take(x, np.roll(np.arange(size), shift), axis)
    return x


@aten("flip")
def flip(low: Lowering, x: Value, dims: Sequence[int]) -> Value:
    for dim in dims:
        axis = axis_of(dim, len(x.shape))
        size = x.shape[axis]
        if isinstance(size, Sym):
            last = low.sub(low.size(size), low.number(1, DType.i32))
            x = low.emit("take", x, low.sub(last, low.count(size)), axis=axis)
        else:
            x = low.take(x, np.arange(size)[::-1], axis)
    return x


@aten("pixel_shuffle")
def pixel_shuffle(low: Lowering, x: Value, factor: int) -> Value:
    *batch, channels, height, width = x.shape
    c, h, w = (low.known(d, "pixel_shuffle") for d in (channels, height, width))
    count = len(batch)
    split_up = low.reshape(x, (*batch, c // factor**2, factor, factor, h, w))
    order = [*range(count), *(count + i for i in (0, 3, 1, 4, 2))]
    return low.reshape(low.transpose(split_up, order), low.shape)


@aten("constant_pad_nd")
def constant_pad(low: Lowering, x: Value, widths: Sequence[int], value: Number = 0) -> Value:
    rank = len(x.shape)
    before, after = [0] * rank, [0] * rank
    for i in range(len(widths) // 2):
        before[rank - 1 - i], after[rank - 1 - i] = widths[2 * i], widths[2 * i + 1]
    if x.dtype == DType.boolean:
        return low.cast(low.pad(low.cast(x, DType.i32), before, after, value), DType.boolean)
    return low.pad(x, before, after, value)


@aten("pad")
def pad(
    low: Lowering, x: Value, widths: Sequence[int], mode: str = "constant", value: Any = None
) -> Value:
    if mode == "constant":
        return constant_pad(low, x, widths, value or 0)
    for i in range(len(widths) // 2):
        axis = len(x.shape) - 1 - i
        if isinstance(x.shape[axis], Sym):
            x = _pad_symbolic(low, x, axis, widths[2 * i], widths[2 * i + 1], mode)
            continue
        size = low.known(x.shape[axis], "padding")
        places = np.arange(-widths[2 * i], size + widths[2 * i + 1])
        if mode == "reflect":
            places = np.abs(places)
            places = (size - 1) - np.abs(size - 1 - places)
        elif mode == "replicate":
            places = np.clip(places, 0, size - 1)
        else:
            places %= size
        if places.tolist() != list(range(size)):
            x = low.take(x, places, axis)
    return x


def _pad_symbolic(low: Lowering, x: Value, axis: int, before: int, after: int, mode: str) -> Value:
    """As above, with places that are computed."""
    if mode not in ("reflect", "replicate"):
        raise OperatorError(f"padding a symbolic size by {mode}")

    def number(value: int) -> Value:
        return low.number(value, DType.i32)

    last = low.sub(low.size(x.shape[axis]), number(1))
    places = low.sub(low.count(x.shape[axis] + (before + after)), number(before))
    if mode == "replicate":
        places = low.minimum(low.maximum(places, number(0)), last)
    else:
        places = low.maximum(places, low.sub(number(0), places))
        beyond = low.sub(last, places)
        places = low.sub(last, low.maximum(beyond, low.sub(number(0), beyond)))
    return low.emit("take", x, places, axis=axis)


@aten("reflection_pad1d", "reflection_pad2d", "reflection_pad3d")
def reflection_pad(low: Lowering, x: Value, widths: Sequence[int]) -> Value:
    return pad(low, x, widths, "reflect")


@aten("replication_pad1d", "replication_pad2d", "replication_pad3d")
def replication_pad(low: Lowering, x: Value, widths: Sequence[int]) -> Value:
    return pad(low, x, widths, "replicate")
