"""The op list: each op is a type rule and a numpy reference, side by side."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from numpy.typing import NDArray

from satchel.errors import ExecutionError, GraphError
from satchel.graph.types import Attribute, TensorType

Types = Sequence[TensorType | None]
Arrays = Sequence[NDArray[Any]]
Attrs = Mapping[str, Attribute]
TypeRule = Callable[[Types, Attrs], list[TensorType]]
Reference = Callable[[Arrays, Attrs], list[NDArray[Any]]]


class Trait(Enum):
    """What passes, quantisation and backends want to know of an op beside its types."""

    moves = "its result is elements of its inputs in another place"
    keeps_codes = "its result is numbers of its first input, and can have the same quantised values"
    row_wise = "each row of its result is made of the same row of its first input"
    unary = "each number of its result is made of the one at the same place of its first input"
    elementwise = "its inputs are broadcast, and each number is made of those at the same place"
    one_axis = "it works along its attribute ``axis`` and leaves the other dimensions alone"
    reduction = "it leaves out its attribute ``axes``"
    layer = "a matrix or kernel of weights, with an attribute ``activation`` for its result"
    integer_layer = "a layer that has a form in integers"
    rounds_input = "its attribute ``activations`` says what the rows of its first input become"
    activation = "a layer's attribute ``activation`` can do it"
    tabulated = "in integers, a table of 256 entries does it"
    integer_pair = "an elementwise op of two inputs that has a form in integers"


@dataclass(frozen=True)
class Op:
    name: str
    arity: tuple[int, int]  # fewest and most inputs; the optional ones come last
    attributes: frozenset[str]
    type_rule: TypeRule
    reference: Reference
    traits: frozenset[Trait] = frozenset()


OPS: dict[str, Op] = {}


def define(
    name: str,
    inputs: int | tuple[int, int],
    *attributes: str,
    traits: Collection[Trait] = (),
) -> Callable[[type], type]:
    """Register a class with the static methods ``types`` and ``run`` as an op."""
    arity = (inputs, inputs) if isinstance(inputs, int) else inputs

    def register(cls: Any) -> Any:
        if name in OPS:
            raise ValueError(f"the op {name} is defined twice")
        OPS[name] = Op(name, arity, frozenset(attributes), cls.types, cls.run, frozenset(traits))
        return cls

    return register


def find_op(name: str) -> Op:
    op = OPS.get(name)
    if op is None:
        near = difflib.get_close_matches(name, OPS, 1)
        raise GraphError(f"there is no op {name!r}", f"Did you mean {near[0]!r}?" if near else "")
    return op


def ops_with(trait: Trait) -> frozenset[str]:
    """The names of the ops that have a trait, as their definitions say."""
    return frozenset(name for name, op in OPS.items() if trait in op.traits)


def infer_types(name: str, types: Types, attrs: Attrs) -> list[TensorType]:
    """The types of an op's outputs; GraphError if the inputs do not obey its rules."""
    op = find_op(name)
    fewest, most = op.arity
    if not fewest <= len(types) <= most:
        raise GraphError(f"{name} takes {fewest} to {most} inputs, not {len(types)}")
    if any(t is None for t in types[:fewest]):
        raise GraphError(f"{name}: a required input is missing")
    unknown = sorted(set(attrs) - op.attributes)
    if unknown:
        raise GraphError(f"{name} has no attribute {unknown[0]!r}")
    return op.type_rule(types, attrs)


def require(condition: bool, op: str, message: str, types: Types = ()) -> None:
    if not condition:
        shown = ", ".join(str(t) for t in types)
        raise GraphError(f"{op}: {message}" + (f"; got {shown}" if shown else ""))


def check_rows(numbers: NDArray[Any], count: int, what: str) -> None:
    """Raise ExecutionError unless all numbers are those of rows that exist."""
    wrong = numbers[(numbers < 0) | (numbers >= count)]
    if wrong.size:
        raise ExecutionError(f"there is no {what} {int(wrong.flat[0])} among {count}")
