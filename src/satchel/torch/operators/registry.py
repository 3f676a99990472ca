"""The table from an operator of torch to the function that writes it as nodes of a graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from satchel.torch.operator_error import OperatorError

__all__ = ["OPERATORS", "Operator", "OperatorError", "aten", "find_operator", "of_namespace"]

Operator = Callable[..., Any]  # (Lowering, *arguments of the operator) -> Value or list of values

AnyOperator = TypeVar("AnyOperator", bound=Operator)

OPERATORS: dict[str, Operator] = {}


def aten(*names: str) -> Callable[[AnyOperator], AnyOperator]:
    """Register a function for ``aten.NAME``; a name without overload stands for all of them."""

    def register(function: AnyOperator) -> AnyOperator:
        for name in names:
            if name in OPERATORS:
                raise ValueError(f"aten.{name} is defined twice")
            OPERATORS[name] = function
        return function

    return register


def of_namespace(namespace: str) -> Callable[..., Callable[[AnyOperator], AnyOperator]]:
    """The same for operators of another namespace, which are kept as ``NAMESPACE::NAME``."""
    return lambda *names: aten(*(f"{namespace}::{name}" for name in names))


def find_operator(name: str) -> Operator | None:
    """By ``NAME.OVERLOAD``, or by the name alone."""
    return OPERATORS.get(name) or OPERATORS.get(name.split(".", maxsplit=1)[0])
