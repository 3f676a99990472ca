"""Interpolation. Every kind is separable: a choice of rows, or a matrix for each dimension."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from satchel.graph.ir import Dim, DType, Sym, Value
from satchel.torch.lowering import Lowering
from satchel.torch.operators.pool import mix_axis
from satchel.torch.operators.registry import aten


def _sizes(low: Lowering, x: Value) -> list[tuple[int, Dim, Dim]]:
    """(axis, size, wanted size) of each dimension that changes its place in the image."""
    pairs = enumerate(zip(x.shape, low.shape, strict=True))
    return [(axis, have, want) for axis, (have, want) in pairs if axis >= 2]


def _centres(
    low: Lowering, have: Dim, want: Dim, factor: float | None, shift: float, corners: bool = False
) -> Value:
    """Where pixels of the result are in a source of a symbolic size: ``(n + shift) / factor``."""
    numbers = low.floats(low.count(want))
    if shift:
        numbers = low.add(numbers, low.number(shift))
    if factor and not corners:
        return low.mul(numbers, low.number(float(np.float32(1 / factor))))
    before, after = low.operand(have, DType.f32), low.operand(want, DType.f32)
    if corners:  # the first on the first, and the last on the last
        before = low.sub(before, low.number(1.0))
        after = low.maximum(low.sub(after, low.number(1.0)), low.number(1.0))
    return low.mul(numbers, low.div(before, after))


def _whole_places(low: Lowering, centres: Value, have: Dim) -> Value:
    """Rounded down, and none behind the last."""
    last = low.add(low.operand(have, DType.i32), low.number(-1, DType.i32))
    return low.minimum(low.cast(low.floor(centres), DType.i32), last)


def _source_places(
    low: Lowering, have: Dim, want: Dim, factor: float | None, corners: bool
) -> Value:
    if corners:
        return _centres(low, have, want, factor, 0.0, corners)
    return low.add(_centres(low, have, want, factor, 0.5), low.number(-0.5))


def _between(low: Lowering, x: Value, axis: int, centres: Value) -> Value:
    """Along an axis of a symbolic size: each between two pixels of the source."""
    (want,) = centres.shape
    centres = low.maximum(centres, low.number(0.0))
    first = _whole_places(low, centres, x.shape[axis])
    second = low.add(first, low.number(1, DType.i32))
    second = _whole_places(low, low.floats(second), x.shape[axis])
    share = low.sub(centres, low.floats(first))
    share = low.reshape(share, (want, *(1 for _ in x.shape[axis + 1 :])))
    start, end = (low.emit("take", x, places, axis=axis) for places in (first, second))
    return low.add(start, low.mul(low.sub(end, start), share))


def _among_four(low: Lowering, x: Value, axis: int, centres: Value) -> Value:
    """The same for cubic interpolation: four pixels, with weights by their distance."""
    (want,) = centres.shape
    floor = low.floor(centres)
    total: Value | None = None
    for step in (-1.0, 0.0, 1.0, 2.0):
        place = low.add(floor, low.number(step)) if step else floor
        weight = _cubic_weight_at(low, low.abs(low.sub(centres, place)), near=step in (0.0, 1.0))
        whole = _whole_places(low, low.maximum(place, low.number(0.0)), x.shape[axis])
        wide = low.reshape(weight, (want, *(1 for _ in x.shape[axis + 1 :])))
        part = low.mul(low.emit("take", x, whole, axis=axis), wide)
        total = part if total is None else low.add(total, part)
    assert total is not None
    return total


def _cubic_weight_at(low: Lowering, distance: Value, near: bool, a: float = -0.75) -> Value:
    """By Horner's rule, for distances up to 1 or above."""
    made: Value | None = None
    for factor in (a + 2, -(a + 3), 0, 1) if near else (a, -5 * a, 8 * a, -4 * a):
        if made is None:
            made = low.number(float(factor))
        else:
            made = low.add(low.mul(made, distance), low.number(float(factor)))
    assert made is not None
    return made


def _ratio(size: int, wanted: int, factor: float | None, corners: bool) -> float:
    """Pixels of the source for one of the result."""
    if corners:
        return (size - 1) / (wanted - 1) if wanted > 1 else 0.0
    return 1 / factor if factor else size / wanted


@aten("upsample_nearest1d", "upsample_nearest2d", "_upsample_nearest_exact2d")
def nearest(low: Lowering, x: Value, size: Any, *scales: Any) -> Value:
    factors = _factors(scales, len(x.shape) - 2)
    shift = 0.5 if "exact" in low.operator else 0.0
    for (axis, have, want), factor in zip(_sizes(low, x), factors, strict=True):
        if isinstance(have, Sym) or isinstance(want, Sym):
            places = _whole_places(low, _centres(low, have, want, factor, shift), have)
            x = low.emit("take", x, places, axis=axis)
            continue
        ratio = np.float32(_ratio(have, want, factor, False))
        chosen = np.floor((np.arange(want, dtype=np.float32) + shift) * ratio).astype(np.int64)
        if have != want or ratio != 1:
            x = low.take(x, np.minimum(chosen, have - 1), axis)
    return x


def _factors(scales: Sequence[Any], count: int) -> list[float | None]:
    listed: list[Any] = []
    for one in scales:
        listed += one if isinstance(one, (list, tuple)) else [one]
    numbers = [float(s) for s in listed if isinstance(s, float)]
    return list(numbers) if len(numbers) == count else [None] * count


def _linear_weight(distance: np.ndarray) -> np.ndarray:
    weights: np.ndarray = np.clip(1 - np.abs(distance), 0, None)
    return weights


def _cubic_weight(distance: np.ndarray, a: float = -0.75) -> np.ndarray:
    d = np.abs(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


def interpolation_matrix(
    size: int, wanted: int, ratio: float, corners: bool, cubic: bool
) -> np.ndarray:
    """Rows of weights: what each pixel of the result takes from each of the source."""
    reach = 2 if cubic else 1
    matrix = np.zeros((wanted, size))
    for row in range(wanted):
        centre = row * ratio if corners else (row + 0.5) * ratio - 0.5
        if not cubic:
            centre = max(centre, 0.0)
        first = math.floor(centre) - reach + 1
        for place in range(first, first + 2 * reach):
            distance = np.array(centre - place)
            weight = _cubic_weight(distance) if cubic else _linear_weight(distance)
            matrix[row, min(max(place, 0), size - 1)] += weight
    return matrix.astype(np.float32)


@aten("upsample_linear1d", "upsample_bilinear2d", "upsample_bicubic2d")
def linear(low: Lowering, x: Value, size: Any, corners: bool, *scales: Any) -> Value:
    factors = _factors(scales, len(x.shape) - 2)
    cubic = "bicubic" in low.operator
    for (axis, have, want), factor in zip(_sizes(low, x), factors, strict=True):
        if isinstance(have, Sym) or isinstance(want, Sym):
            centres = _source_places(low, have, want, factor, corners)
            x = (_among_four if cubic else _between)(low, x, axis, centres)
            continue
        ratio = _ratio(have, want, factor, corners)
        matrix = interpolation_matrix(have, want, ratio, corners, cubic)
        if have != want or not np.array_equal(matrix, np.eye(have)):
            x = mix_axis(low, x, matrix, axis)
    return x


def _lanczos_weight(distance: np.ndarray) -> np.ndarray:
    weights: np.ndarray = np.sinc(distance) * np.sinc(distance / 3)
    return np.where(np.abs(distance) < 3, weights, 0)


# Weights by distance, and how far they reach.
_SMOOTH = {
    "bilinear": (_linear_weight, 1),
    "bicubic": (lambda distance: _cubic_weight(distance, -0.5), 2),
    "lanczos": (_lanczos_weight, 3),
}


def smoothing_matrix(size: int, wanted: int, ratio: float, kind: str) -> np.ndarray:
    """The same with antialiasing: a smaller result takes from all pixels that it covers."""
    weight, reach = _SMOOTH[kind]
    wide = max(ratio, 1.0)
    matrix = np.zeros((wanted, size))
    for row in range(wanted):
        centre = (row + 0.5) * ratio
        first = max(int(centre - reach * wide + 0.5), 0)
        last = min(int(centre + reach * wide + 0.5), size)
        own = weight((np.arange(first, last) - centre + 0.5) / wide)
        matrix[row, first:last] = own / own.sum()
    return matrix.astype(np.float32)


@aten("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa", "_upsample_lanczos2d_aa")
def smooth(low: Lowering, x: Value, size: Any, corners: bool, *scales: Any) -> Value:
    factors = _factors(scales, 2)
    kind = low.operator.removeprefix("_upsample_").removesuffix("2d_aa")
    for (axis, have, want), factor in zip(_sizes(low, x), factors, strict=True):
        known = (low.known(have, "antialiasing"), low.known(want, "antialiasing"))
        matrix = smoothing_matrix(*known, _ratio(*known, factor, corners), kind)
        if have != want or not np.array_equal(matrix, np.eye(known[0])):
            x = mix_axis(low, x, matrix, axis)
    return x
