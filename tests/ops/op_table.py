"""The op table: every op in every variation, with torch's answer. Other backends run it too."""

from __future__ import annotations

from ops import (
    rows_attention,
    rows_attention_full,
    rows_choose,
    rows_conv,
    rows_elementwise,
    rows_experts,
    rows_hadamard,
    rows_linear,
    rows_quantized,
    rows_reduce,
    rows_requantize,
    rows_select,
    rows_shape,
    rows_tree,
    rows_whole,
)
from support.op_case import OpCase

CASES: list[OpCase] = [
    *rows_elementwise.ROWS,
    *rows_shape.ROWS,
    *rows_hadamard.ROWS,
    *rows_reduce.ROWS,
    *rows_requantize.ROWS,
    *rows_select.ROWS,
    *rows_linear.ROWS,
    *rows_experts.ROWS,
    *rows_quantized.ROWS,
    *rows_attention.ROWS,
    *rows_attention_full.ROWS,
    *rows_choose.ROWS,
    *rows_conv.ROWS,
    *rows_tree.ROWS,
    *rows_whole.ROWS,
]
