"""Sizes and numbers that torch computes with symbols, in our terms."""

from __future__ import annotations

import operator
from functools import reduce
from typing import Any

import torch

from satchel.errors import ImportModuleError
from satchel.graph.ir import Dim, DType, Shape, Sym, Value
from satchel.torch.lowering import Lowering
from satchel.torch.operators.registry import OperatorError

_ARITHMETIC = {"Add": "add", "Mul": "mul", "Pow": "pow", "FloatPow": "pow"}
_ARITHMETIC |= {"IntTrueDiv": "div", "FloatTrueDiv": "div"}


class Sizes:
    """The symbols of an exported program."""

    def __init__(self, program: Any, low: Lowering) -> None:
        self._bounds = program.range_constraints
        self._low = low
        self._symbols: dict[str, Dim] = {}

    def shape(self, tensor: torch.Tensor) -> Shape:
        return tuple(self.size(d) for d in tensor.shape)

    def size(self, size: Any) -> Dim:
        """Of torch's int or SymInt."""
        return size if isinstance(size, int) else self._computed(size.node.expr)

    def decide(self, tensor: torch.Tensor, most: int, known: int | None) -> None:
        """The size of a result that only a run finds out: at most so many; or it is known here."""
        for size in tensor.shape:
            if not isinstance(size, int) and size.node.expr.is_symbol:
                name = str(size.node.expr)
                self._symbols.setdefault(name, Sym(name, most) if known is None else known)

    def decided(self, tensor: torch.Tensor, made: Value) -> None:
        """The same, of a mask that was asked before: both sizes are one."""
        for size, own in zip(tensor.shape, made.shape, strict=True):
            if not isinstance(size, int) and size.node.expr.is_symbol:
                self._symbols[str(size.node.expr)] = own

    def number(self, value: torch.SymFloat) -> Value | float:
        """What is computed from sizes in floats: a number, or a tensor without dimensions."""
        return self._float(value.node.expr)

    def _computed(self, expression: Any) -> Dim:
        """From torch's arithmetic on sizes to ours, which knows less of it."""
        if expression.is_integer and expression.is_number:
            return int(expression)
        if expression.is_symbol:
            return self._symbol(expression)
        parts = [self._computed(part) for part in expression.args]
        kind = type(expression).__name__
        if kind == "Add":
            return reduce(operator.add, parts)
        if kind == "Mul":
            return reduce(operator.mul, parts)
        if kind in ("FloorDiv", "CleanDiv") and isinstance(parts[1], int):
            return parts[0] // parts[1]
        if kind == "Min" and len(parts) == 2:
            return self._least(*parts)
        raise OperatorError(f"a size that is computed from symbolic ones: {expression}")

    @staticmethod
    def _least(one: Dim, other: Dim) -> Dim:
        """The lesser of a number and a size has a name of its own; the run decides it."""
        number, size = (one, other) if isinstance(one, int) else (other, one)
        if not isinstance(number, int) or not isinstance(size, Sym):
            raise OperatorError(f"the lesser of the sizes {one} and {other}")
        name = size.name.translate(str.maketrans(" +-*/", "_pmxd"))
        return Sym(f"least_{number}_{name}", min(number, size.maximum))

    def _symbol(self, expression: Any) -> Dim:
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
            self._need(Sym(name, most), int(bounds.lower))
        return self._symbols[name]

    def _need(self, size: Sym, least: int) -> None:
        """No call may have less: the module may do something else then. Torch asks for at least 2
        of nearly all sizes, where 1 is as good."""
        above = size - (least - 1) if least > 2 else None
        if isinstance(above, Sym):
            self._low.builder.graph.bounds.append(above)

    def _float(self, expression: Any) -> Value | float:
        if expression.is_number:
            return float(expression)
        kind = type(expression).__name__
        if expression.is_symbol or kind in ("FloorDiv", "CleanDiv"):
            return self._low.operand(self._computed(expression), DType.f32)
        parts = [self._low.operand(self._float(part), DType.f32) for part in expression.args]
        if kind == "ToFloat":
            return parts[0]
        if kind not in _ARITHMETIC:
            raise OperatorError(f"a number that is computed from symbolic sizes: {expression}")
        return reduce(lambda a, b: self._low.emit(_ARITHMETIC[kind], a, b), parts)
