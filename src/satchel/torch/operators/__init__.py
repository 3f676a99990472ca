"""One file per family of operators; importing this package fills the table."""

from satchel.torch.operators import (
    activation,
    attention,
    compare,
    conv,
    create,
    distance,
    elementwise,
    index,
    linear,
    normalize,
    pool,
    reduce,
    resize,
    scatter,
    shape,
    sort,
    window,
)
from satchel.torch.operators.registry import OPERATORS

__all__ = [
    "OPERATORS",
    "activation",
    "attention",
    "compare",
    "conv",
    "create",
    "distance",
    "elementwise",
    "index",
    "linear",
    "normalize",
    "pool",
    "reduce",
    "resize",
    "scatter",
    "shape",
    "sort",
    "window",
]
