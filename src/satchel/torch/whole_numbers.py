"""Whole numbers come around in their own width, as torch's do; those of 8 and 16 bits have 32."""

from __future__ import annotations

from typing import Any

import torch

from satchel.graph.ir import DType, Value
from satchel.torch.lowering import Lowering

NARROW = (torch.int8, torch.uint8, torch.int16)
_WIDE = (torch.int32, torch.int64)
_MAY_LEAVE_RANGE = {"add", "sub", "rsub", "mul", "neg", "abs", "pow", "addmm", "mm", "bmm", "sum"}
_MAY_LEAVE_RANGE |= {"bitwise_not", "bitwise_left_shift", "__lshift__", "_to_copy", "to", "type_as"}
_MAY_LEAVE_RANGE |= {"div", "floor_divide", "prod", "cumsum", "cumprod", "copy", "matmul", "dot"}
# Of two operands, which torch brings to one type before anything else.
_OF_ONE_TYPE = set("add sub rsub mul floor_divide remainder fmod pow maximum minimum".split())
_OF_ONE_TYPE |= set("lt le gt ge eq ne bitwise_and bitwise_or bitwise_xor".split())
_OF_ONE_TYPE |= set("__and__ __or__ __xor__".split())


def come_around(low: Lowering, name: str, value: Value, dtype: torch.dtype) -> Value:
    """An operator's result, where it may have left the range of torch's type."""
    return _to_width(low, value, dtype) if name in _MAY_LEAVE_RANGE else value


def bring_to_one_type(
    low: Lowering, name: str, given: list[Any], examples: list[Any], whole_division: bool
) -> None:
    """The first two operands as torch has them: ``x < 300`` of uint8 means ``x < 44``.

    ``examples`` are tensors where an operand is one, and None elsewhere.
    """
    if len(given) < 2 or not (name in _OF_ONE_TYPE or (name == "div" and whole_division)):
        return
    pair = [g if e is None else e for g, e in zip(given[:2], examples[:2], strict=True)]
    if not all(isinstance(p, (torch.Tensor, int, float)) for p in pair):
        return  # a symbolic size
    if not any(isinstance(p, torch.Tensor) for p in pair):
        return
    dtype = torch.result_type(*pair)
    if dtype not in (*NARROW, *_WIDE):
        return
    for place, one in enumerate(pair):
        if not isinstance(one, torch.Tensor):
            given[place] = narrowed(one, dtype)
        elif one.dtype != dtype and isinstance(given[place], Value):
            given[place] = _to_width(low, given[place], dtype)


def narrowed(number: Any, dtype: torch.dtype) -> Any:
    """A whole number as torch has it in that type."""
    return torch.tensor(number).to(dtype).item() if isinstance(number, int) else number


def _to_width(low: Lowering, value: Value, dtype: torch.dtype) -> Value:
    if dtype not in NARROW or value.dtype not in (DType.i32, DType.i64):
        return value
    value = low.cast(value, DType.i32)
    if dtype == torch.uint8:
        return low.integer(value, low.number(255, DType.i32), kind="and")
    unused = low.number(32 - torch.iinfo(dtype).bits, DType.i32)
    return low.integer(low.integer(value, unused, kind="shl"), unused, kind="shr")
