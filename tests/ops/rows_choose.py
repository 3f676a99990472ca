"""Rows of the op table: what a mask chooses, boxes that do not overlap, sizes of something else."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from satchel.graph.builder import GraphBuilder
from satchel.graph.ir import DType, Sym, Value
from support.arrays import normal, uniform
from support.op_case import Input, OpCase, case

S, T = Sym("S", 9), Sym("T", 5)
_exact = partial(case, tolerance=0)


def _nonzero_rows() -> list[OpCase]:
    """From none to all of them, in several calls of one method."""
    rows = []
    for number, count in enumerate((1, 7, 5000)):
        masks = [
            uniform(count, low=0, high=1, seed=share) < share for share in (0.5, 0.0, 1.0, 0.1)
        ]
        slots = [Input((count,), DType.boolean)]
        oracle = lambda t, x: x.nonzero()[:, 0].int()  # noqa: E731
        calls = [[mask] for mask in masks]
        size = f"chosen_{number}"
        rows.append(_exact("nonzero", f"{count}", slots, oracle, calls=calls, size=size))

    def doubled(b: GraphBuilder, values: list[Value | None]) -> Value:
        """What is computed with them is as long."""
        x, mask = values
        assert x and mask
        taken = b.node("take", x, b.node("nonzero", mask, size="chosen_rows"), axis=0)
        return b.node("concat", b.node("add", taken, taken), taken, axis=0)

    slots = [Input((S, 3)), Input((S,), DType.boolean)]
    calls = [[normal(n, 3), uniform(n, low=0, high=1) < share] for n, share in CALLS]
    oracle = lambda t, x, m: t.cat([x[m] * 2, x[m]])  # noqa: E731
    rows.append(_exact("nonzero", "rows", slots, oracle, calls=calls, build=doubled))
    return rows


CALLS = ((9, 0.5), (4, 0.0), (1, 1.0), (9, 0.5))


def _kept(t: Any, boxes: Any, threshold: float) -> Any:
    keeps: list[bool] = []
    for i, box in enumerate(boxes):
        ratios = []
        for j in range(i):
            sides = t.minimum(box[2:4], boxes[j][2:4]) - t.maximum(box[:2], boxes[j][:2])
            both = sides.clamp(min=0).prod()
            areas = [(b[2:4] - b[:2]).prod() for b in (box, boxes[j])]
            hidden = both / (areas[0] + areas[1] - both) > threshold
            ratios.append(keeps[j] and bool(hidden) and bool((box[4:] == boxes[j][4:]).all()))
        keeps.append(not any(ratios))
    return t.tensor(keeps)


def _boxes(count: int) -> np.ndarray:
    corners = uniform(count, 2, low=0, high=4)
    sizes = uniform(count, 2, low=0.1, high=3, seed=1)
    return np.concatenate([corners, corners + sizes], 1)


def _nms_rows() -> list[OpCase]:
    rows = []
    for threshold in (0.0, 0.25, 0.7):
        oracle = partial(_kept, threshold=threshold)
        rows.append(_exact("nms", f"{threshold}", [_boxes(40)], oracle, threshold=threshold))
    oracle = partial(_kept, threshold=0.5)
    calls = [[_boxes(9)], [_boxes(1)]]
    rows.append(_exact("nms", "symbolic", [Input((S, 4))], oracle, calls=calls, threshold=0.5))
    kinds = np.arange(40, dtype=np.float32)[:, None] % 3
    of_kinds = [np.concatenate([_boxes(40), kinds], 1)]
    rows.append(_exact("nms", "kinds", of_kinds, oracle, threshold=0.5))
    empty = np.zeros((3, 4), np.float32)  # boxes without an area overlap nothing
    rows.append(_exact("nms", "empty", [empty], oracle, threshold=0.5))
    return rows


def _reshape_as_rows() -> list[OpCase]:
    slots = [Input((S * T, 4)), Input((S, T))]
    calls = [[normal(s * t, 4), normal(s, t)] for s, t in ((9, 5), (1, 1), (2, 3))]
    oracle = lambda t, x, like: x.reshape(*like.shape, 4)  # noqa: E731
    rows = [_exact("reshape_as", "divided", slots, oracle, calls=calls, shape=(-1, -2, 4))]
    fixed = lambda t, x, like: x.reshape(3, 2, 2)  # noqa: E731
    given = [normal(6, 2), normal(3, 1)]
    return [*rows, _exact("reshape_as", "fixed", given, fixed, shape=(-1, 2, 2))]


ROWS = [*_nonzero_rows(), *_nms_rows(), *_reshape_as_rows()]
