"""All ops. Importing this package fills the table."""

from satchel.graph.ops import (
    attention,
    conv,
    elementwise,
    linear,
    normalize,
    pool,
    quantized,
    reduce,
    select,
    shape,
)
from satchel.graph.ops.registry import OPS, Op, find_op, infer_types

__all__ = [
    "OPS",
    "Op",
    "attention",
    "conv",
    "elementwise",
    "find_op",
    "infer_types",
    "linear",
    "normalize",
    "pool",
    "quantized",
    "reduce",
    "select",
    "shape",
]
