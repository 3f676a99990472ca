"""Comparisons, logic and choice."""

from __future__ import annotations

from satchel.graph.ir import DType, Value
from satchel.torch.lowering import Lowering, Number
from satchel.torch.operators.registry import aten

Operand = Value | Number


def _comparison(kind: str) -> None:
    @aten(kind)
    def compare(low: Lowering, a: Operand, b: Operand) -> Value:
        floats = any(
            x.dtype == DType.f32 if isinstance(x, Value) else isinstance(x, float) for x in (a, b)
        )
        dtype = DType.f32 if floats else DType.i32
        return low.emit("compare", low.operand(a, dtype), low.operand(b, dtype), kind=kind)


for _kind in "lt le gt ge eq ne".split():
    _comparison(_kind)


def _truth(low: Lowering, x: Operand) -> Value:
    """1 or 0 as an integer, whatever it was."""
    return low.cast(low.operand(x, DType.boolean), DType.i32)


@aten("logical_not", "bitwise_not")
def logical_not(low: Lowering, x: Value) -> Value:
    return low.compare(_truth(low, x), low.number(0, DType.i32), kind="eq")


@aten("logical_and", "bitwise_and")
def logical_and(low: Lowering, a: Operand, b: Operand) -> Value:
    return low.cast(low.mul(_truth(low, a), _truth(low, b)), DType.boolean)


@aten("logical_or", "bitwise_or")
def logical_or(low: Lowering, a: Operand, b: Operand) -> Value:
    return low.cast(low.maximum(_truth(low, a), _truth(low, b)), DType.boolean)


@aten("logical_xor", "bitwise_xor")
def logical_xor(low: Lowering, a: Operand, b: Operand) -> Value:
    return low.compare(_truth(low, a), _truth(low, b), kind="ne")


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
