"""Sizes and numbers that torch computes with symbols, in our terms."""

from __future__ import annotations

from typing import Any

import torch

from satchel.errors import ImportModuleError
from satchel.graph.ir import Dim, Shape, Sym
from satchel.torch.operators.registry import OperatorError


class Sizes:
    """The symbols of an exported program."""

    def __init__(self, program: Any) -> None:
        self._bounds = program.range_constraints
        self._symbols: dict[str, Sym] = {}

    def shape(self, tensor: torch.Tensor) -> Shape:
        return tuple(self.size(d) for d in tensor.shape)

    def size(self, size: Any) -> Dim:
        """Of torch's int or SymInt."""
        return size if isinstance(size, int) else self._computed(size.node.expr)

    def number(self, value: torch.SymFloat) -> float:
        """What is computed from sizes in floats, if it is known."""
        expression = value.node.expr
        if not expression.is_number:
            raise OperatorError(f"a number that is computed from symbolic sizes: {expression}")
        return float(expression)

    def _computed(self, expression: Any) -> Dim:
        """Torch computes with sizes; ours are given by the inputs."""
        if expression.is_integer and expression.is_number:
            return int(expression)
        if expression.is_symbol:
            return self._symbol(expression)
        raise OperatorError(f"a size that is computed from a symbolic one: {expression}")

    def _symbol(self, expression: Any) -> Sym:
        name = str(expression)
        if name not in self._symbols:
            bounds = self._bounds.get(expression)
            # Without a bound, torch has an infinity of its own kind, or a number near 2^63.
            finite = bounds is not None and bounds.upper < 1 << 31
            most = int(bounds.upper) if finite else 0
            if most < 1:
                raise ImportModuleError(
                    f"the symbolic size {name} has no largest value",
                    'Give one: torch.export.Dim("batch", max=8).',
                )
            self._symbols[name] = Sym(name, most)
        return self._symbols[name]
