"""All ops. Importing this package fills the table."""

from satchel.graph.ops import (
    attention,
    attention_codes,
    attention_full,
    conv,
    elementwise,
    hadamard,
    linear,
    normalize,
    pool,
    quantized,
    reduce,
    requantize,
    select,
    shape,
)
from satchel.graph.ops.registry import OPS, Op, find_op, infer_types

__all__ = [
    "OPS",
    "Op",
    "attention",
    "attention_codes",
    "attention_full",
    "conv",
    "elementwise",
    "find_op",
    "hadamard",
    "infer_types",
    "linear",
    "normalize",
    "pool",
    "quantized",
    "reduce",
    "requantize",
    "select",
    "shape",
]
