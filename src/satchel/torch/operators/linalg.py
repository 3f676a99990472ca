"""Equations, inverses, determinants and Cholesky's factors of small matrices, step by step.

A matrix that has no inverse is an error in torch, and gives infinities or NaN here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from satchel.graph.ir import DType, Value
from satchel.graph.ops.elementwise import broadcast
from satchel.torch.lowering import Lowering
from satchel.torch.operators.elementwise import sign_of
from satchel.torch.operators.registry import OperatorError, aten

MOST_ROWS = 64  # each is a dozen nodes


@dataclass(frozen=True)
class Solved:
    """What elimination finds out of a matrix: the numbers that rows were divided by, whether rows
    were swapped for each, and what stood beside the matrix, times its inverse.
    """

    pivots: list[Value]  # [..., 1, 1] each
    swaps: list[Value]  # bool [..., 1]
    beside: Value | None


def rows_of(low: Lowering, matrix: Value) -> int:
    count = low.known(matrix.shape[-1], "a matrix")
    if count > MOST_ROWS:
        raise OperatorError(f"a matrix of {count} rows, and {MOST_ROWS} are the most")
    return count


def eliminate(low: Lowering, matrix: Value, beside: Value | None) -> Solved:
    """Gauss's and Jordan's elimination: every step takes the row with the largest number left."""
    count, rank = rows_of(low, matrix), len(matrix.shape)
    rows, columns = rank - 2, rank - 1
    work = matrix if beside is None else low.concat([matrix, beside], columns)
    numbers = low.constant(np.arange(count, dtype=np.int32), "rows")
    pivots, swaps = [], []
    for step in range(count):
        column = low.slice(work, columns, step, step + 1)
        left = np.where(np.arange(count) < step, np.float32(-2), np.float32(0))[:, None]
        sizes = low.where(
            low.constant(left < 0, "done"), low.constant(left, "none"), low.abs(column)
        )
        best = low.argmax(low.reshape(sizes, sizes.shape[:-1]), axis=rows, keepdims=1)
        here = low.number(step, DType.i32)
        order = low.where(low.compare(numbers, best, kind="eq"), here, numbers)
        order = low.where(low.constant(np.arange(count) == step, "step"), best, order)
        wide = low.expand(low.reshape(order, (*order.shape, 1)), work.shape, work)
        work = low.gather(work, wide, axis=rows)
        pivot = low.slice(low.slice(work, rows, step, step + 1), columns, step, step + 1)
        own = low.div(low.slice(work, rows, step, step + 1), pivot)
        others = low.sub(work, low.mul(low.slice(work, columns, step, step + 1), own))
        is_own = low.constant((np.arange(count) == step)[:, None], "step")
        work = low.where(is_own, low.expand(own, work.shape, work), others)
        pivots.append(pivot)
        swaps.append(low.compare(best, here, kind="ne"))
    wide_work = low.known(work.shape[-1], "a matrix")
    rest = low.slice(work, columns, count, wide_work) if beside is not None else None
    return Solved(pivots, swaps, rest)


def solve(low: Lowering, matrix: Value, beside: Value) -> Value:
    """What the matrix times the result is: ``beside``, [..., n, m]."""
    batch = broadcast(matrix.shape[:-2], beside.shape[:-2], "a matrix")
    made = eliminate(
        low,
        low.expand(matrix, (*batch, *matrix.shape[-2:]), beside),
        low.expand(beside, (*batch, *beside.shape[-2:]), matrix),
    )
    assert made.beside is not None
    return made.beside


def _swapped(low: Lowering, x: Value) -> Value:
    rank = len(x.shape)
    return low.transpose(x, [*range(rank - 2), rank - 1, rank - 2])


def _no_error(low: Lowering, matrix: Value) -> Value:
    return low.expand(low.number(0, DType.i32), matrix.shape[:-2], matrix)


def _only_first(low: Lowering, *results: Any) -> list[Any]:
    """Results of which those that are missing are read by nobody."""
    unknown = [i for i, one in enumerate(results) if one is None and i in low.used]
    if unknown:
        raise OperatorError("the factors of the matrix")
    return list(results)


@aten("linalg_inv_ex")
def inverse(low: Lowering, matrix: Value, **_check: Any) -> list[Any]:
    identity = low.constant(np.eye(rows_of(low, matrix), dtype=np.float32), "identity")
    return [solve(low, matrix, identity), _no_error(low, matrix)]


@aten("_linalg_solve_ex")
def solve_equations(
    low: Lowering, matrix: Value, beside: Value, *, left: bool = True, **_check: Any
) -> list[Any]:
    line = len(beside.shape) == 1 or (
        len(beside.shape) == len(matrix.shape) - 1 and beside.shape == matrix.shape[:-1]
    )
    columns = low.reshape(beside, (*beside.shape, 1)) if line else beside
    if left:
        made = solve(low, matrix, columns)
    else:
        made = _swapped(low, solve(low, _swapped(low, matrix), _swapped(low, columns)))
    result = low.reshape(made, low.shape)
    return _only_first(low, result, None, None, _no_error(low, matrix))


@aten("linalg_solve_triangular")
def solve_triangular(
    low: Lowering,
    matrix: Value,
    beside: Value,
    *,
    upper: bool,
    left: bool = True,
    unitriangular: bool = False,
) -> Value:
    """The other half of the matrix is not read."""
    count = rows_of(low, matrix)
    ones = np.ones((count, count), np.float32)
    half = np.triu(ones, int(unitriangular)) if upper else np.tril(ones, -int(unitriangular))
    whole = low.where(low.constant(half > 0, "half"), matrix, low.number(0.0))
    if unitriangular:
        whole = low.add(whole, low.constant(np.eye(count, dtype=np.float32), "identity"))
    if left:
        return solve(low, whole, beside)
    return _swapped(low, solve(low, _swapped(low, whole), _swapped(low, beside)))


def _signs(low: Lowering, found: Solved) -> list[Value]:
    """-1 for every swap of rows, and 1 where there is none."""
    floats = [low.cast(swap, DType.f32) for swap in found.swaps]
    return [low.affine(one, scale=-2.0, shift=1.0) for one in floats]


@aten("_linalg_det")
def determinant(low: Lowering, matrix: Value) -> list[Any]:
    found = eliminate(low, matrix, None)
    total = low.number(1.0)
    for factor in [*found.pivots, *_signs(low, found)]:
        total = low.mul(total, low.reshape(factor, low.shape))
    return _only_first(low, total, None, None)


@aten("_linalg_slogdet")
def sign_and_logarithm(low: Lowering, matrix: Value) -> list[Any]:
    found = eliminate(low, matrix, None)
    sign, logarithm = low.number(1.0), low.number(0.0)
    for pivot in found.pivots:
        one = low.reshape(pivot, low.shape)
        sign = low.mul(sign, sign_of(low, one))
        logarithm = low.add(logarithm, low.log(low.abs(one)))
    for one in _signs(low, found):
        sign = low.mul(sign, low.reshape(one, low.shape))
    return _only_first(low, sign, logarithm, None, None)


@aten("linalg_cholesky_ex")
def cholesky(low: Lowering, matrix: Value, *, upper: bool = False, **_check: Any) -> list[Any]:
    """Column by column; what is left of the matrix loses each one's product with itself."""
    count, rank = rows_of(low, matrix), len(matrix.shape)
    rows, columns = rank - 2, rank - 1
    lower: list[Value] = []
    left = _swapped(low, matrix) if upper else matrix
    for step in range(count):
        column = low.slice(left, columns, step, step + 1)
        root = low.sqrt(low.slice(column, rows, step, step + 1))
        below = low.constant((np.arange(count) >= step)[:, None], "below")
        own = low.where(below, low.div(column, root), low.number(0.0))
        left = low.sub(left, low.mul(own, _swapped(low, own)))
        lower.append(own)
    factor = low.concat(lower, columns)
    return [_swapped(low, factor) if upper else factor, _no_error(low, matrix)]


@aten("cholesky_solve")
def cholesky_solve(low: Lowering, beside: Value, factor: Value, upper: bool = False) -> Value:
    first, second = (_swapped(low, factor), factor) if upper else (factor, _swapped(low, factor))
    half = solve_triangular(low, first, beside, upper=False)
    return solve_triangular(low, second, half, upper=True)
