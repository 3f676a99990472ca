"""Rows of the op table: the Walsh-Hadamard transform."""

from __future__ import annotations

from typing import Any

import numpy as np

from satchel.graph.ir import Sym
from support.arrays import normal
from support.op_case import Input, OpCase, Oracle, case

S = Sym("S", 9)


def _product(block: int) -> Oracle:
    """With the matrix itself: entry (i, j) is -1 to the number of bits that i and j share."""

    def oracle(t: Any, x: Any) -> Any:
        signs = [[(-1) ** bin(i & j).count("1") for j in range(block)] for i in range(block)]
        matrix = t.tensor(signs, dtype=x.dtype) / block**0.5
        return (x.reshape(-1, block) @ matrix).reshape(x.shape)

    return oracle


def _rows() -> list[OpCase]:
    rows = []
    for shape, block in (
        ((1,), 1),
        ((8,), 8),
        ((3, 24), 8),
        ((3, 24), 4),
        ((2, 5, 64), 64),
        ((2, 3, 2, 32), 2),
        ((3, 1536), 512),
        ((1, 4096), 4096),
    ):
        name = f"{'x'.join(map(str, shape))}_by_{block}"
        rows.append(case("hadamard", name, [normal(*shape)], _product(block), block=block))
    sizes = [[normal(n, 32)] for n in (9, 1)]
    rows.append(case("hadamard", "symbolic", [Input((S, 32))], _product(16), calls=sizes, block=16))
    outlier = np.zeros((2, 64), np.float32)
    outlier[:, 3] = 1e30
    rows.append(case("hadamard", "outlier", [outlier], _product(64), block=64))
    return rows


ROWS = _rows()
