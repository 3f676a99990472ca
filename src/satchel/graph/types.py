"""Types of values and attributes of nodes: what ops are defined in terms of."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
    ``(s + 1) // 2``. Equal sizes have equal names, because there is one way to write each.

    >>> Sym("s", 9) - 1, (Sym("s", 9) - 1) // 2 + 1
    (Sym(name='s -1', maximum=8), Sym(name='s +1 /2', maximum=5))
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

    def __add__(self, other: Dim) -> Dim:
        if isinstance(other, int):
            return self.then(1, other, 1)
        mine, others = self.steps, other.steps
        linear = all(len(s) <= 1 and all(each.over == 1 for each in s) for s in (mine, others))
        if self.base != other.base or not linear:
            raise GraphError(f"the sum of the sizes {self.name} and {other.name}")
        first, second = (s[0] if s else SizeStep(1, 0, 1) for s in (mine, others))
        times, plus = first.times + second.times, first.plus + second.plus
        maximum = (self.maximum - first.plus) // first.times
        return Sym(self.base, maximum).then(times, plus, 1)

    __radd__ = __add__

    def __sub__(self, other: int) -> Dim:
        return self.then(1, -other, 1)

    def __mul__(self, other: int) -> Dim:
        return self.then(other, 0, 1)

    __rmul__ = __mul__

    def __floordiv__(self, other: int) -> Dim:
        return self.then(1, 0, other)


@dataclass(frozen=True)
class SizeStep:
    """``(times * size + plus) // over``."""

    times: int
    plus: int
    over: int

    def followed_by(self, after: SizeStep) -> list[SizeStep]:
        """This step and another one: as one where that is possible, else with as much as possible
        of what is added in the first."""
        if self.over == 1:
            times = after.times * self.times
            return [SizeStep(times, after.times * self.plus + after.plus, after.over)]
        whole, rest = divmod(after.plus, after.times)
        first = SizeStep(self.times, self.plus + whole * self.over, self.over)
        if after.times == 1:
            return [SizeStep(first.times, first.plus, first.over * after.over)]
        return [first, SizeStep(after.times, rest, after.over)]

    def reduced(self) -> SizeStep:
        common = math.gcd(self.times, self.over)
        return SizeStep(self.times // common, self.plus // common, self.over // common)

    def __str__(self) -> str:
        parts = [f"*{self.times}"] if self.times != 1 else []
        parts += [f"{self.plus:+}"] if self.plus else []
        return " ".join([*parts, f"/{self.over}"] if self.over != 1 else parts)


def _read_steps(words: list[str]) -> list[SizeStep]:
    """From a name: at most one factor, one sum and one divisor to a step, in this order."""
    steps: list[SizeStep] = []
    while words:
        numbers = {"*": 1, "+": 0, "/": 1}
        for kind in numbers:
            if words and ("+" if words[0][0] == "-" else words[0][0]) == kind:
                word = words.pop(0)
                numbers[kind] = int(word if kind == "+" else word[1:])
        steps.append(SizeStep(numbers["*"], numbers["+"], numbers["/"]))
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
        if any(isinstance(d, int) and d < 1 for d in self.shape):
            raise GraphError(f"the shape {list(self.shape)} has a dimension below 1")

    def __str__(self) -> str:
        return f"{self.dtype.name}[{', '.join(map(str, self.shape))}]"

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

    def split(shape: Shape) -> tuple[int, Sequence[str]]:
        fixed = int(np.prod([d for d in shape if isinstance(d, int)], dtype=np.int64))
        return fixed, sorted(d.name for d in shape if isinstance(d, Sym))

    return split(a) == split(b)
