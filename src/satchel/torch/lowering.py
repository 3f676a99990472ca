"""What operators are written with: a graph builder that computes constants at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.graph.builder import GraphBuilder
from satchel.graph.ir import Attribute, Dim, DType, Shape, Sym, TensorType, Value, largest
from satchel.graph.ops import find_op
from satchel.quantize.affine import CodedMatrix
from satchel.torch.operator_error import OperatorError

Array = NDArray[Any]
Number = int | float | bool


class Lowering:
    """Adds nodes to one graph. What depends on constants only becomes a constant.

    While an operator is written, ``operator`` is its name, ``shape`` and ``dtype`` are those that
    torch says its (first) result has, and ``examples`` are the tensors that torch gave it.
    Of several results, ``used`` are the numbers of those that something reads. ``symbolic`` is an
    input that has symbolic sizes.
    """

    def __init__(self, builder: GraphBuilder) -> None:
        self.builder = builder
        self.shape: Shape = ()
        self.dtype = DType.f32
        self.operator = ""
        self.examples: list[Any] = []
        self.used: set[int] = set()
        self.symbolic: Value | None = None
        self.complex_result = False  # whether the operator makes complex numbers
        self.seed: Value | None = None  # the input that random numbers are made of
        self.random_operators = 0
        self.coded: list[CodedMatrix] = []  # constants that come quantised
        self.chosen: list[tuple[Value, Value]] = []  # masks, and the places of what they choose
        self.biases: list[tuple[Value, Value]] = []  # masks of attention, and what they add
        self._names: set[str] = set()
        self._empties = 0

    def __getattr__(self, op: str) -> Callable[..., Value]:
        """``low.relu(x)`` is ``low.emit("relu", x)``."""
        if op.startswith("_"):
            raise AttributeError(op)
        return lambda *inputs, **attrs: self.emit(op, *inputs, **attrs)

    def emit(self, op: str, *inputs: Value | None, **attrs: Attribute) -> Value:
        arrays = [v.constant if v else None for v in inputs]
        if all(v is None or v.constant is not None for v in inputs):
            with np.errstate(all="ignore"):
                (result,) = find_op(op).reference(arrays, attrs)  # type: ignore[arg-type]
            named = next((v.name for v in inputs if v), op)
            return self.constant(np.asarray(result), named.split("#")[0])
        return self.builder.node(op, *inputs, **attrs)

    def constant(self, data: Array, name: str = "constant") -> Value:
        """A constant under a name of its own."""
        array = np.asarray(data)
        unique, number = name, 2
        while unique in self._names:
            unique, number = f"{name}#{number}", number + 1
        self._names.add(unique)
        return Value(unique, TensorType(array.shape, DType(array.dtype.name)), constant=array)

    def empty(self, shape: Shape, dtype: DType) -> Value:
        """A tensor without numbers: nothing has to be computed for it, so it is a constant."""
        self._empties += 1
        data = np.zeros(largest(shape), dtype.numpy)
        return Value(f"empty_{self._empties}", TensorType(shape, dtype), constant=data)

    def known_array(self, name: str, array: Array) -> Value:
        """A constant that is one, however often it is asked for."""
        made = self.builder.constant(name, array)
        self._names.add(made.name)  # what is computed from it has another
        return made

    def number(self, value: Number, dtype: DType = DType.f32) -> Value:
        if dtype in (DType.i32, DType.i64) and isinstance(value, int):
            limits = np.iinfo(dtype.numpy)
            if not limits.min <= value <= limits.max:
                raise OperatorError(f"the number {value} needs more than {8 * dtype.size} bits")
        return self.known_array("number", np.asarray(value, dtype.numpy))

    def operand(self, value: Value | Number | Sym, dtype: DType) -> Value:
        """A value, a number or a symbolic size as an input of that dtype."""
        if isinstance(value, Sym):
            return self.cast(self.reshape(self.size(value), ()), dtype)
        return self.cast(value, dtype) if isinstance(value, Value) else self.number(value, dtype)

    def cast(self, value: Value, dtype: DType) -> Value:
        return value if value.dtype == dtype else self.emit("cast", value, dtype=dtype.name)

    def index(self, value: Value) -> Value:
        """Whole numbers that name entries, in 32 bits; one that needs more is an error."""
        if value.dtype != DType.i64:
            return self.cast(value, DType.i32)
        return self.emit("cast", value, dtype="i32", checked=1)

    def floats(self, value: Value) -> Value:
        return self.cast(value, DType.f32)

    def reshape(self, value: Value, shape: Shape) -> Value:
        """To a shape whose symbolic dimensions stay where they are, but for sizes of 1."""
        if value.shape == shape:
            return value
        moved = any(
            isinstance(d, Sym) and (i >= len(value.shape) or value.shape[i] != d)
            for i, d in enumerate(shape)
        )
        if moved and [d for d in value.shape if d != 1] == [d for d in shape if d != 1]:
            return self._move_ones(value, shape)
        if moved and _between_symbols(value.shape) == _between_symbols(shape):
            return self._reshape_around(value, shape)
        wanted = []
        for i, d in enumerate(shape):
            if not isinstance(d, Sym):
                wanted.append(d)
            elif i < len(value.shape) and value.shape[i] == d:
                wanted.append(0)
            elif -1 not in wanted and d not in value.shape:
                wanted.append(-1)  # joined with known sizes, or divided
            else:
                return self._reshape_as(value, shape)
        return self.emit("reshape", value, shape=tuple(wanted))

    def _reshape_as(self, value: Value, shape: Shape) -> Value:
        """Symbolic sizes are those of something that has all of them."""
        symbols = {d for d in shape if isinstance(d, Sym)}
        like = next((v for v in self._sized() if symbols <= set(v.shape)), None)
        like = self._of_sizes(sorted(symbols, key=str)) if like is None else like
        sizes = tuple(-1 - like.shape.index(d) if isinstance(d, Sym) else d for d in shape)
        return self.emit("reshape_as", value, like, shape=sizes)

    def _of_sizes(self, sizes: Sequence[Dim]) -> Value:
        """A tensor of these sizes, for what only asks for its shape."""
        made: Value | None = None
        for i, size in enumerate(sizes):
            behind = tuple(1 for _ in sizes[i + 1 :])
            line = self.emit("reshape", self.count(size), shape=(0, *behind))
            made = line if made is None else self.emit("add", made, line)
        assert made is not None
        return made

    def _sized(self) -> list[Value]:
        """What tells symbolic sizes: inputs, and what masks have chosen."""
        return [*self.builder.graph.inputs, *(places for _, places in self.chosen)]

    def undecided(self, size: Dim) -> bool:
        """Whether it is a size that nothing has yet, nor is it computed from such."""
        known = {d.name for v in self._sized() for d in v.shape if isinstance(d, Sym)}
        return isinstance(size, Sym) and not size.steps and size.name not in known

    def _reshape_around(self, value: Value, shape: Shape) -> Value:
        """Only what lies between symbolic sizes changes: these wait in front meanwhile."""

        def symbols_first(sizes: Shape) -> list[int]:
            return sorted(range(len(sizes)), key=lambda i: not isinstance(sizes[i], Sym))

        there, back = symbols_first(value.shape), symbols_first(shape)
        flat = self.reshape(self.transpose(value, there), tuple(shape[i] for i in back))
        return self.transpose(flat, [back.index(i) for i in range(len(shape))])

    def _move_ones(self, value: Value, shape: Shape) -> Value:
        """Sizes of 1 go to the end, where they can come and go, and from there to their places."""
        long = [i for i, d in enumerate(value.shape) if d != 1]
        ones = [i for i, d in enumerate(value.shape) if d == 1]
        kept = tuple(value.shape[i] for i in long)
        value = self.reshape(self.transpose(value, [*long, *ones]), kept)
        value = self.reshape(value, (*kept, *(1 for d in shape if d == 1)))
        places = [i for i, d in enumerate(shape) if d != 1]
        places += [i for i, d in enumerate(shape) if d == 1]
        return self.transpose(value, [places.index(i) for i in range(len(shape))])

    def transpose(self, value: Value, perm: Sequence[int]) -> Value:
        if list(perm) == list(range(len(perm))):
            return value
        return self.emit("transpose", value, perm=tuple(perm))

    def take(self, value: Value, numbers: Sequence[int] | Array, axis: int) -> Value:
        index = self.known_array("numbers", np.asarray(numbers, np.int32))
        return self.emit("take", value, index, axis=axis)

    def expand(self, value: Value, shape: Shape, like: Value | None = None) -> Value:
        """Repeat up to a shape; symbolic sizes are taken from ``like``."""
        if value.shape == shape:
            return value
        symbols = {d for d in shape if isinstance(d, Sym)}
        if like is None or like.constant is not None or not symbols <= set(like.shape):
            # Any input that has all of these sizes tells them as well.
            known = [v for v in self._sized() if symbols <= set(v.shape)]
            like = known[0] if symbols and known else like
            if symbols and not known:
                return self._expand_in_turn(value, shape)
        sizes = []
        for d in shape:
            if isinstance(d, Sym):
                if like is None or d not in like.shape:
                    raise OperatorError(f"nothing here has the symbolic size {d.name}")
                sizes.append(-1 - like.shape.index(d))
            else:
                sizes.append(d)
        inputs = (value, like) if any(d < 0 for d in sizes) else (value,)
        if like is not None and len(inputs) == 2 and like.constant is not None:
            raise OperatorError("a constant has no symbolic size")
        return self.emit("expand", *inputs, shape=tuple(sizes))

    def _expand_in_turn(self, value: Value, shape: Shape) -> Value:
        """One symbolic size after the other, by taking the one entry as often; then known ones."""
        ones = len(shape) - len(value.shape)
        value = self.reshape(value, (*(1 for _ in range(ones)), *value.shape))
        for axis, size in enumerate(shape):
            if isinstance(size, Sym) and value.shape[axis] == 1:
                first = self.emit("mul", self.count(size), self.number(0, DType.i32))
                value = self.emit("take", value, first, axis=axis)
        if value.shape == shape:
            return value
        sizes = tuple(-1 - i if isinstance(d, Sym) else d for i, d in enumerate(shape))
        return self.emit("expand", value, value, shape=sizes)

    def count(self, size: Dim) -> Value:
        """0, 1, 2, … up to a size, as i32; a symbolic one comes from an input's."""
        if not isinstance(size, Sym):
            return self.constant(np.arange(size, dtype=np.int32), "count")
        if len(size.bases) > 1 and not any(size in v.shape for v in self._sized()):
            return self._count_joined(size)
        for value in self._sized():
            if size in value.shape:
                return self.emit("count", value, axis=value.shape.index(size))
        for value in self._sized():
            for axis, found in enumerate(value.shape):
                if isinstance(found, Sym) and found.name == size.base:
                    steps = [n for s in size.steps for n in (s.times, s.plus, s.over)]
                    return self.emit("count", value, axis=axis, steps=tuple(steps))
        raise OperatorError(f"no input has the symbolic size {size.name}")

    def _count_joined(self, size: Sym) -> Value:
        """Up to a sum of products: each product as rows of rows, and one behind the other."""
        maxima = {d.name: d for v in self._sized() for d in v.shape if isinstance(d, Sym)}
        if len(size.steps) != 1 or size.steps[0].over != 1 or size.steps[0].plus < 0:
            raise OperatorError(f"the size {size.name}, which is computed from others")
        step = size.steps[0]
        products = [((size.base, *step.by), step.times), *step.more]
        parts: list[Value] = []
        so_far = self.number(0, DType.i32)
        for names, times in [*products, *([((), step.plus)] if step.plus else [])]:
            factors: list[Dim] = [*(maxima[name] for name in names), times]
            line, length = self.count(factors[0]), factors[0]
            entries = self.operand(factors[0], DType.i32)
            for factor in factors[1:]:
                if factor == 1:
                    continue
                wide = self.operand(factor, DType.i32)
                entries = self.emit("mul", entries, wide)
                rows = self.emit("mul", line, wide)
                within = self.reshape(self.count(factor), (1, factor))
                both = self.emit("add", self.reshape(rows, (length, 1)), within)
                length = length * factor
                line = self.emit("reshape", both, shape=(-1,))
            parts.append(self.emit("add", line, so_far))
            so_far = self.emit("add", so_far, entries)
        return self.concat(parts, 0)

    def size(self, size: Dim) -> Value:
        """A size as a number, i32 [1]."""
        if not isinstance(size, Sym):
            return self.constant(np.array([size], np.int32), "size")
        zeros = self.emit("mul", self.count(size), self.number(0, DType.i32))
        ones = self.emit("add", zeros, self.number(1, DType.i32))
        return self.emit("reduce_sum", ones, axes=(0,), keepdims=1)  # of none of them, 0

    def pad(self, value: Value, before: Sequence[int], after: Sequence[int], fill: Number) -> Value:
        """Pad, or cut off where a width is negative."""
        if not math.isfinite(fill):  # which no attribute holds
            return self._pad_with_parts(value, before, after, fill)
        for axis, (first, last) in enumerate(zip(before, after, strict=True)):
            if first < 0 or last < 0:
                size = self.known(value.shape[axis], "padding")
                value = self.slice(value, axis, max(0, -first), size - max(0, -last))
        widths = tuple(max(0, w) for w in before), tuple(max(0, w) for w in after)
        if not any((*widths[0], *widths[1])):
            return value
        return self.emit("pad", value, before=widths[0], after=widths[1], value=float(fill))

    def _pad_with_parts(
        self, value: Value, before: Sequence[int], after: Sequence[int], fill: Number
    ) -> Value:
        for axis, widths in enumerate(zip(before, after, strict=True)):
            if not any(widths):
                continue
            ends = [
                self.expand(
                    self.constant(np.full((1,) * len(value.shape), fill, value.dtype.numpy)),
                    (*value.shape[:axis], width, *value.shape[axis + 1 :]),
                    value,
                )
                if width > 0
                else None
                for width in widths
            ]
            kept = value
            if min(widths) < 0:
                size = self.known(value.shape[axis], "padding")
                kept = self.slice(value, axis, max(0, -widths[0]), size - max(0, -widths[1]))
            parts = [ends[0], kept, ends[1]]
            value = self.concat([part for part in parts if part is not None], axis)
        return value

    def slice(self, value: Value, axis: int, start: int, stop: int) -> Value:
        if start == 0 and value.shape[axis] == stop:
            return value
        if stop <= start:
            return self.empty((*value.shape[:axis], 0, *value.shape[axis + 1 :]), value.dtype)
        return self.emit("slice", value, axis=axis, start=start, stop=stop)

    def concat(self, parts: Sequence[Value], axis: int) -> Value:
        """Any number of parts; the op itself takes eight. Empty ones add nothing."""
        parts = [part for part in parts if not part.type.is_empty] or parts[:1]
        while len(parts) > 8:
            parts = [
                self.emit("concat", *parts[i : i + 8], axis=axis) for i in range(0, len(parts), 8)
            ]
        return parts[0] if len(parts) == 1 else self.emit("concat", *parts, axis=axis)

    @staticmethod
    def known(size: Dim, what: str) -> int:
        if isinstance(size, Sym):
            raise OperatorError(f"{what} needs a size that is known, not {size.name}")
        return size


def product_of(sizes: Sequence[Dim]) -> Dim:
    """How many entries a tensor of these sizes has."""
    total: Dim = 1
    for size in sizes:
        total = size * total
    return total


def axis_of(axis: int, rank: int) -> int:
    return axis + rank if axis < 0 else axis


def axes_of(axes: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """All axes where none are given; a single number has none."""
    if axes is None or axes == [] or rank == 0:
        return tuple(range(rank))
    listed = [axes] if isinstance(axes, int) else axes
    return tuple(sorted(axis_of(a, rank) for a in listed))


def _between_symbols(shape: Shape) -> list[Dim]:
    """The symbolic sizes in order, and between them the products of the known ones."""
    runs: list[Dim] = [1]
    for d in shape:
        if isinstance(d, Sym):
            runs += [d, 1]
        else:
            last = runs[-1]
            assert isinstance(last, int)
            runs[-1] = last * d
    return runs


def _text(shape: Shape) -> str:
    return "[" + ", ".join(d.name if isinstance(d, Sym) else str(d) for d in shape) + "]"
