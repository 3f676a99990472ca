"""Comparisons, logic and choice."""

from __future__ import annotations

from satchel.graph.ir import DType, Value
from satchel.torch.lowering import Lowering, Number
from satchel.torch.operators.elementwise import whole_function
from satchel.torch.operators.registry import aten

Operand = Value | Number


def _common(*operands: Operand) -> DType:
    """The narrowest type that holds all of them."""
    values = [x.dtype for x in operands if isinstance(x, Value)]
    numbers = [x for x in operands if not isinstance(x, Value)]
    if DType.f32 in values or any(isinstance(x, float) for x in numbers):
        return DType.f32
    wide = DType.i64 in values or any(not -(1 << 31) <= x < 1 << 31 for x in numbers)
    return DType.i64 if wide else DType.i32


def _comparison(kind: str) -> None:
    @aten(kind)
    def compare(low: Lowering, a: Operand, b: Operand) -> Value:
        dtype = _common(a, b)
        return low.emit("compare", low.operand(a, dtype), low.operand(b, dtype), kind=kind)


for _kind in "lt le gt ge eq ne".split():
    _comparison(_kind)


def _truth(low: Lowering, x: Operand) -> Value:
    """1 or 0 as an integer, whatever it was."""
    return low.cast(low.operand(x, DType.boolean), DType.i32)


@aten("logical_not")
def logical_not(low: Lowering, x: Value) -> Value:
    return low.compare(_truth(low, x), low.number(0, DType.i32), kind="eq")


@aten("logical_and")
def logical_and(low: Lowering, a: Operand, b: Operand) -> Value:
    return low.cast(low.mul(_truth(low, a), _truth(low, b)), DType.boolean)


@aten("logical_or")
def logical_or(low: Lowering, a: Operand, b: Operand) -> Value:
    return low.cast(low.maximum(_truth(low, a), _truth(low, b)), DType.boolean)


@aten("logical_xor")
def logical_xor(low: Lowering, a: Operand, b: Operand) -> Value:
    return low.compare(_truth(low, a), _truth(low, b), kind="ne")


@aten("bitwise_not")
def bitwise_not(low: Lowering, x: Value) -> Value:
    """Of whole numbers, all bits turn: -x - 1."""
    if x.dtype == DType.boolean:
        return logical_not(low, x)
    return low.sub(low.number(-1, x.dtype), x)


_ON_TRUTHS = {"and": logical_and, "or": logical_or, "xor": logical_xor}


def _bitwise(kind: str) -> None:
    @aten(f"bitwise_{kind}", f"__{kind}__")
    def combine(low: Lowering, a: Operand, b: Operand) -> Value:
        if low.dtype == DType.boolean:
            return _ON_TRUTHS[kind](low, a, b)
        return whole_function(low, kind, a, b)


for _kind in _ON_TRUTHS:
    _bitwise(_kind)


@aten("bitwise_left_shift", "__lshift__")
def shift_left(low: Lowering, a: Operand, b: Operand) -> Value:
    return whole_function(low, "shl", a, b)


@aten("bitwise_right_shift", "__rshift__")
def shift_right(low: Lowering, a: Operand, b: Operand) -> Value:
    return whole_function(low, "shr", a, b)


@aten("where")
def where(low: Lowering, condition: Value, a: Operand, b: Operand) -> Value:
    dtype = DType.i32 if low.dtype == DType.boolean else low.dtype
    chosen = low.emit(
        "where", low.cast(condition, DType.boolean), *(low.operand(x, dtype) for x in (a, b))
    )
    return low.cast(chosen, low.dtype)


@aten("masked_fill")
def masked_fill(low: Lowering, x: Value, mask: Value, value: Operand) -> Value:
    return where(low, mask, value, x)
