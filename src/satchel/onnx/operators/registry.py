"""The table from an operator of ONNX to the function that writes it as nodes of a graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from satchel.graph.ir import Dim, DType, Shape, Value
from satchel.torch.lowering import Lowering, axis_of
from satchel.torch.operator_error import OperatorError

Array = NDArray[Any]
# (Lowering, Call, *inputs, None where one is absent or empty) -> Value or list of values
Operator = Callable[..., Any]
AnyOperator = TypeVar("AnyOperator", bound=Operator)

OPERATORS: dict[str, Operator] = {}


@dataclass(frozen=True)
class Call:
    """One node of an ONNX graph: what an operator may ask of it besides its inputs."""

    name: str
    attributes: dict[str, Any]  # numbers, texts, lists, arrays and graphs
    version: int  # of the operators' set
    outputs: int  # how many someone reads, counted from the first
    asked: set[str] = field(default_factory=set)  # which attributes have been read

    def get(self, name: str, default: Any = None) -> Any:
        self.asked.add(name)
        return self.attributes.get(name, default)


def onnx_operator(*names: str) -> Callable[[AnyOperator], AnyOperator]:
    """Register a function for operators of ONNX's own set, of any version."""

    def register(function: AnyOperator) -> AnyOperator:
        for name in names:
            if name in OPERATORS:
                raise ValueError(f"{name} is defined twice")
            OPERATORS[name] = function
        return function

    return register


def known_array(value: Value | None, what: str) -> Array:
    """The numbers of an input that must be known at export; absent ones are none."""
    if value is None:
        return np.zeros(0, np.int64)
    if value.constant is None:
        raise OperatorError(f"{what} that is computed at run time")
    return value.constant


def numbers_of(value: Value | None, what: str) -> list[int]:
    return [int(n) for n in known_array(value, what).reshape(-1)]


def known_shape(low: Lowering, x: Value, what: str) -> tuple[int, ...]:
    return tuple(low.known(d, what) for d in x.shape)


def listed_axes(
    call: Call, given: Value | None, rank: int, name: str = "axes"
) -> tuple[int, ...] | None:
    """Axes of an attribute or, in newer versions, of an input; None where there are none."""
    found = call.get(name)
    if found is None and given is not None:
        found = numbers_of(given, "axes")
    if found is None:
        return None
    listed = [found] if isinstance(found, int) else found
    return tuple(sorted(axis_of(int(a), rank) for a in listed))


def same_type(low: Lowering, *values: Value) -> list[Value]:
    """Floats with floats; bools become whole numbers, which arithmetic knows."""
    return [low.cast(v, DType.i32) if v.dtype == DType.boolean else v for v in values]


def product(sizes: Sequence[Dim] | Shape) -> int:
    return int(np.prod([int(s) for s in sizes], dtype=np.int64))  # type: ignore[arg-type]
