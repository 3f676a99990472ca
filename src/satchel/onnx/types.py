"""ONNX's element types as those that graphs have."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper

from satchel.graph.ir import DType, Value
from satchel.torch.lowering import Lowering
from satchel.torch.operator_error import OperatorError

Array = NDArray[Any]

DTYPES: dict[int, DType] = {
    TensorProto.FLOAT: DType.f32,
    TensorProto.FLOAT16: DType.f32,
    TensorProto.BFLOAT16: DType.f32,
    TensorProto.DOUBLE: DType.f32,
    TensorProto.INT64: DType.i64,
    TensorProto.UINT32: DType.i64,
    TensorProto.INT32: DType.i32,
    TensorProto.INT16: DType.i32,
    TensorProto.INT8: DType.i32,
    TensorProto.UINT16: DType.i32,
    TensorProto.UINT8: DType.i32,
    TensorProto.BOOL: DType.boolean,
}
# Whole numbers of fewer bits than they are computed in: how many, and whether they have a sign.
NARROW_BITS: dict[int, tuple[int, bool]] = {
    TensorProto.INT8: (8, True),
    TensorProto.UINT8: (8, False),
    TensorProto.INT16: (16, True),
    TensorProto.UINT16: (16, False),
}


def dtype_of(kind: int) -> DType:
    if kind not in DTYPES:
        raise OperatorError(f"numbers of the type {onnx.TensorProto.DataType.Name(kind)}")
    return DTYPES[kind]


def array_of(tensor: TensorProto) -> Array:
    """The numbers of a stored tensor, in the type that they are computed in."""
    dtype = dtype_of(tensor.data_type)
    return np.asarray(numpy_helper.to_array(tensor)).astype(dtype.numpy)


def cast_to(low: Lowering, x: Value, kind: int) -> Value:
    """What a cast makes of x; narrow whole numbers come around."""
    made = low.cast(x, dtype_of(kind))
    if kind not in NARROW_BITS:
        return made
    bits, signed = NARROW_BITS[kind]
    if not signed:
        return low.integer(made, low.number((1 << bits) - 1, DType.i32), kind="and")
    unused = low.number(32 - bits, DType.i32)
    return low.integer(low.integer(made, unused, kind="shl"), unused, kind="shr")
