"""Types of values and attributes of nodes: what ops are defined in terms of."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np

from satchel.errors import GraphError

Attribute = int | float | str | tuple[int, ...]

MOST_DIMENSIONS = 8


class DType(Enum):
    """Element types. The value is the numpy name, so ``np.dtype(dtype.value)`` works."""

    f32 = "float32"
    f16 = "float16"
    i32 = "int32"
    i64 = "int64"
    i8 = "int8"
    u8 = "uint8"
    boolean = "bool"

    @property
    def numpy(self) -> np.dtype[Any]:
        return np.dtype(self.value)

    @property
    def size(self) -> int:
        return self.numpy.itemsize


@dataclass(frozen=True)
class Sym:
    """A dimension that is known only when a method is called: 1 ≤ size ≤ maximum.

    One that is computed from another says how in its name, from left to right: ``s +1 /2`` is
    ``(s + 1) // 2``, and ``b *s *2 +t`` is ``b * s * 2 + t``. Equal sizes have equal names, because
    there is one way to write each.

    >>> Sym("s", 9) - 1, (Sym("s", 9) - 1) // 2 + 1
    (Sym(name='s -1', maximum=8), Sym(name='s +1 /2', maximum=5))
    >>> Sym("s", 9) * Sym("b", 4) + Sym("t", 2)
    Sym(name='b *s +t', maximum=38)
    """

    name: str
    maximum: int

    def __post_init__(self) -> None:
        if self.maximum < 1:
            raise GraphError(f"the size {self.name} must have a maximum of at least 1")

    def __str__(self) -> str:
        return f"{self.name}≤{self.maximum}"

    @property
    def base(self) -> str:
        """The name of the size that this one is computed from, or its own."""
        return self.name.split(" ", 1)[0]

    @property
    def steps(self) -> list[SizeStep]:
        """What is done with the base, one after the other."""
        return _read_steps(self.name.split(" ")[1:])

    def then(self, times: int, plus: int, over: int) -> Dim:
        """``(times * size + plus) // over``, for a factor and a divisor above 0."""
        if times < 1 or over < 1:
            raise GraphError(f"a size that falls as {self.base} grows")
        steps = self.steps
        latest = [SizeStep(times, plus, over).reduced()]
        while steps and len(latest) == 1:  # joined with the one before, and that with its own
            latest = [each.reduced() for each in steps.pop().followed_by(latest[0])]
        texts = map(str, [*steps, *latest])
        maximum = (times * self.maximum + plus) // over
        return Sym(" ".join([self.base, *filter(None, texts)]), maximum)

    @property
    def bases(self) -> set[str]:
        """The names of all sizes that this one is computed from, or its own."""
        others = [name for step in self.steps for name in step.names]
        return {self.base, *others}

    def __add__(self, other: Dim) -> Dim:
        if isinstance(other, int):
            return self.then(1, other, 1)
        total = Counter(_terms(self, "sum", other))
        total.update(_terms(other, "sum", self))
        return _from_terms(total, self.maximum + other.maximum)

    __radd__ = __add__

    def __sub__(self, other: int) -> Dim:
        return self.then(1, -other, 1)

    def __mul__(self, other: Dim) -> Dim:
        if isinstance(other, int):
            return self.then(other, 0, 1)
        total = Counter[Names]()
        for mine, times in _terms(self, "product", other).items():
            for others, again in _terms(other, "product", self).items():
                total[tuple(sorted(mine + others))] += times * again
        return _from_terms(total, self.maximum * other.maximum)

    __rmul__ = __mul__

    def __floordiv__(self, other: int) -> Dim:
        return self.then(1, 0, other)


Names = tuple[str, ...]


def _terms(sym: Sym, what: str, other: Sym) -> dict[Names, int]:
    """A size as a sum: how often each product of sizes is in it; ``()`` is a plain number."""
    steps = sym.steps or [SizeStep(1, 0, 1)]
    if len(steps) > 1 or steps[0].over != 1:
        raise GraphError(f"the {what} of the sizes {sym.name} and {other.name}")
    (step,) = steps
    first = tuple(sorted((sym.base, *step.by)))
    return {first: step.times, (): step.plus, **dict(step.more)}


def _from_terms(terms: Mapping[Names, int], maximum: int) -> Dim:
    products = sorted(names for names, times in terms.items() if names and times)
    if not products:
        return terms.get((), 0)
    if min(terms[names] for names in products) < 1:
        raise GraphError("a size that falls as another grows")
    (base, *by), *others = products
    more = tuple((names, terms[names]) for names in others)
    step = SizeStep(terms[products[0]], terms.get((), 0), 1, tuple(by), more)
    return Sym(" ".join(filter(None, [base, str(step)])), maximum)


@dataclass(frozen=True)
class SizeStep:
    """``(times * size + plus) // over``.

    The first step of a size may join others: the size is then multiplied by those in ``by``, and
    products of sizes are added, each as often as ``more`` says.
    """

    times: int
    plus: int
    over: int
    by: Names = ()
    more: tuple[tuple[Names, int], ...] = ()

    @property
    def names(self) -> list[str]:
        """The sizes that it joins."""
        return [*self.by, *(name for names, _ in self.more for name in names)]

    def followed_by(self, after: SizeStep) -> list[SizeStep]:
        """This step and another one: as one where that is possible, else with as much as possible
        of what is added in the first."""
        if self.over == 1:
            more = tuple((names, after.times * n) for names, n in self.more)
            times, plus = after.times * self.times, after.times * self.plus + after.plus
            return [SizeStep(times, plus, after.over, self.by, more)]
        whole, rest = divmod(after.plus, after.times)
        first = replace(self, plus=self.plus + whole * self.over)
        if after.times == 1:
            return [replace(first, over=first.over * after.over)]
        return [first, SizeStep(after.times, rest, after.over)]

    def reduced(self) -> SizeStep:
        common = math.gcd(self.times, self.over, *(n for _, n in self.more))
        more = tuple((names, n // common) for names, n in self.more)
        return SizeStep(
            self.times // common, self.plus // common, self.over // common, self.by, more
        )

    def __str__(self) -> str:
        parts = [f"*{name}" for name in self.by]
        parts += [f"*{self.times}"] if self.times != 1 else []
        for names, times in self.more:
            parts.append("+" + "*".join([*names, *([str(times)] if times != 1 else [])]))
        parts += [f"{self.plus:+}"] if self.plus else []
        return " ".join([*parts, f"/{self.over}"] if self.over != 1 else parts)


def _read_steps(words: list[str]) -> list[SizeStep]:
    """From a name: at most one factor, one sum and one divisor to a step, in this order, and in
    the first the sizes that are joined."""
    steps: list[SizeStep] = []
    while words:
        by, more = [], []
        while words and words[0][0] == "*" and not words[0][1:].isdigit():
            by.append(words.pop(0)[1:])
        numbers = {"*": 1, "+": 0, "/": 1}
        for kind in numbers:
            while kind == "+" and words and words[0][0] == "+" and not words[0][1:].isdigit():
                *names, last = words.pop(0)[1:].split("*")
                times = int(last) if last.isdigit() else 1
                more.append((tuple(names if last.isdigit() else [*names, last]), times))
            if words and ("+" if words[0][0] == "-" else words[0][0]) == kind:
                word = words.pop(0)
                numbers[kind] = int(word if kind == "+" else word[1:])
        steps.append(SizeStep(numbers["*"], numbers["+"], numbers["/"], tuple(by), tuple(more)))
    return steps


Dim = int | Sym
Shape = tuple[Dim, ...]


def largest(shape: Shape) -> tuple[int, ...]:
    """The shape with every symbolic dimension at its maximum."""
    return tuple(d.maximum if isinstance(d, Sym) else d for d in shape)


@dataclass(frozen=True)
class TensorType:
    shape: Shape
    dtype: DType = DType.f32

    def __post_init__(self) -> None:
        if len(self.shape) > MOST_DIMENSIONS:
            raise GraphError(
                f"a tensor has {len(self.shape)} dimensions, and at most {MOST_DIMENSIONS} are "
                "possible"
            )
        if any(isinstance(d, int) and d < 0 for d in self.shape):
            raise GraphError(f"the shape {list(self.shape)} has a dimension below 0")

    def __str__(self) -> str:
        return f"{self.dtype.name}[{', '.join(map(str, self.shape))}]"

    @property
    def is_empty(self) -> bool:
        """Whether it never has a number. Such tensors exist only until a graph is finished."""
        return 0 in self.shape

    @property
    def max_bytes(self) -> int:
        """Bytes it takes with every symbolic dimension at its maximum."""
        return int(np.prod(largest(self.shape), dtype=np.int64)) * self.dtype.size


def attr_int(attrs: Mapping[str, Attribute], name: str, default: int | None = None) -> int:
    value = attrs.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int):
        raise GraphError(f"the attribute {name} must be an integer, not {value!r}")
    return value


def attr_float(attrs: Mapping[str, Attribute], name: str, default: float | None = None) -> float:
    value = attrs.get(name, default)
    if not isinstance(value, (int, float)):
        raise GraphError(f"the attribute {name} must be a number, not {value!r}")
    return float(value)


def attr_ints(attrs: Mapping[str, Attribute], name: str) -> tuple[int, ...]:
    value = attrs.get(name)
    if not isinstance(value, tuple):
        raise GraphError(f"the attribute {name} must be a tuple of integers, not {value!r}")
    return value


def attr_str(attrs: Mapping[str, Attribute], name: str, default: str | None = None) -> str:
    value = attrs.get(name, default)
    if not isinstance(value, str):
        raise GraphError(f"the attribute {name} must be a string, not {value!r}")
    return value


def same_elements(a: Shape, b: Shape) -> bool:
    """Whether two shapes hold the same number of elements for every size of their symbols."""

    try:
        one, other = (_elements(shape) for shape in (a, b))
    except GraphError:  # products that have no name: all must be the same
        return _parts(a) == _parts(b)
    return str(one) == str(other)


def _elements(shape: Shape) -> Dim:
    total: Dim = 1
    for d in shape:
        total = total * d
    return total


def _parts(shape: Shape) -> tuple[int, Sequence[str]]:
    fixed = int(np.prod([d for d in shape if isinstance(d, int)], dtype=np.int64))
    return fixed, sorted(d.name for d in shape if isinstance(d, Sym))
