"""All operators. Importing this package fills the table."""

from satchel.onnx.operators import (
    boxes,
    einsum,
    elementwise,
    index,
    layers,
    quantized,
    recurrent,
    reduce,
    resize,
    sequences,
    shape,
)
from satchel.onnx.operators.registry import OPERATORS, Call

__all__ = [
    "OPERATORS",
    "Call",
    "boxes",
    "einsum",
    "elementwise",
    "index",
    "layers",
    "quantized",
    "recurrent",
    "reduce",
    "resize",
    "sequences",
    "shape",
]
