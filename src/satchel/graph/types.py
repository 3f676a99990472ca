"""Types of values and attributes of nodes: what ops are defined in terms of."""

from __future__ import annotations

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
    """A dimension that is known only when a method is called: 1 ≤ size ≤ maximum."""

    name: str
    maximum: int

    def __post_init__(self) -> None:
        if self.maximum < 1:
            raise GraphError(f"the size {self.name} must have a maximum of at least 1")

    def __str__(self) -> str:
        return f"{self.name}≤{self.maximum}"


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
