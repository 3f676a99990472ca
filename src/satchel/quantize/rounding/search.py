"""Scales by trying some, with errors weighted by how strong each input channel is.

Plain rounding takes the scale that its largest weight needs. A weight whose input is nearly
always small may just as well be clipped, if the others then lie on finer steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.quantize.blockwise import LARGEST_SCALE
from satchel.quantize.blockwise import needed_scales as needed_block_scales
from satchel.quantize.packing import plain_scales
from satchel.quantize.steps import (
    LARGEST_MULTIPLE,
    LOWEST_MULTIPLE,
    fits_steps,
    largest_of,
    needed_scales,
    run_steps,
    runs,
)

Array = NDArray[Any]

# Parts of the step that a run's largest weight needs: it becomes -8, is clipped or, with the other
# sign, becomes 7. Then multiples near what each group's largest weight needs, of both signs.
_STEP_PARTS = (1.0, 0.9, -8 / 7)
_MULTIPLE_FACTORS = np.concatenate([np.linspace(0.7, 1.1, 7), -np.linspace(0.7, 8 / 7, 7)])
# Multiples of the scale that the largest weight needs. With 4 bits both signs are tried, since
# there is one more code below zero than above it.
_FACTORS = {4: np.linspace(0.65, 1.15, 17), 8: np.linspace(0.9, 1.0, 6)}
# Multiples of a step are taken up to this many times the squared error of scales of any size: rows
# come in tiles, and one without a step makes all of its tile slower.
_WORST_ERROR_RATIO = 1.4
_REFITS = 2
_AT_ONCE = 1 << 16  # weights, so that they stay in the cache of a core
LIMITS = {4: (-8, 7), 8: (-127, 127)}


def search_scales(w: Array, bits: int, group: int, power: Array | None = None) -> Array:
    """Scales (float16) ``[rows, cols / group]`` of the least weighted squared error found.

    ``power`` is the mean square of every input channel; without it all count alike.

    >>> w = np.array([[1.0, 0.1, -0.1, 0.2, 0.1, -0.2, 0.1, 0.2]], np.float32)
    >>> float(search_scales(w, 4, 8, np.array([0.001, 1, 1, 1, 1, 1, 1, 1.0]))[0, 0]) < 0.1
    True
    """
    rows, cols = w.shape
    scales = np.empty((rows, cols // group), np.float16)
    weights = _group_weights(power, cols, group)
    for part in _parts(rows, cols):
        groups = np.ascontiguousarray(w[part], np.float32).reshape(-1, cols // group, group)
        scales[part] = (
            _search_runs(groups, weights)
            if bits == 4
            else _search(groups, weights, plain_scales(groups, bits), bits)
        )
    return scales


def _search_runs(groups: Array, weights: Array) -> Array:
    """Four bits: multiples of a step, where scales of any size are not much better."""
    scales = np.empty(groups.shape[:2], np.float16)
    for run in runs(groups.shape[1], groups.shape[2]):
        part, part_weights = groups[:, run], weights[run]
        own = _search(part, part_weights, needed_scales(part).astype(np.float16), 4)
        stepped, error = _search_steps(part, part_weights)
        limit = _WORST_ERROR_RATIO * _run_errors(part, part_weights, own)
        scales[:, run] = np.where((error <= limit)[:, None], stepped, own)
    return scales


def _search_steps(groups: Array, weights: Array) -> tuple[Array, Array]:
    """Of a run: the scales of the step with the least error over the run, and that error."""
    needed = needed_scales(groups)
    scales = np.zeros(needed.shape, np.float16)
    least = np.full(len(needed), np.inf, np.float32)
    with np.errstate(all="ignore"):
        largest = needed == largest_of(needed)[:, None]
        for part in _STEP_PARTS:
            step = run_steps(needed, part)[:, None]
            ratio = np.where(needed == 0, np.float32(0), needed / step)
            best = np.full(needed.shape, np.inf, np.float32)
            found = np.zeros(needed.shape, np.float32)
            for factor in _MULTIPLE_FACTORS.astype(np.float32):
                near = np.clip(np.rint(ratio * factor), LOWEST_MULTIPLE, LARGEST_MULTIPLE)
                tried = np.where(largest, np.float32(LARGEST_MULTIPLE), near) * step
                error = _group_errors(groups, weights, tried)
                found, best = np.where(error < best, tried, found), np.minimum(best, error)
            error = best.sum(axis=1)
            better = (error < least) & fits_steps(needed, step[:, 0])
            scales = np.where(better[:, None], found.astype(np.float16), scales)
            least = np.where(better, error, least)
    return scales, least


def _group_errors(groups: Array, weights: Array, scales: Array) -> Array:
    meant = nearest_codes(groups, scales, 4) * scales.astype(np.float32)[..., None]
    return _weighted_error(groups, meant, weights)


def _run_errors(groups: Array, weights: Array, scales: Array) -> Array:
    total: Array = _group_errors(groups, weights, scales).sum(axis=1)
    return total


def _search(groups: Array, weights: Array, plain: Array, bits: int) -> Array:
    """Scales of any size, each group by itself."""
    best: Array = np.full(plain.shape, np.inf, np.float32)
    scales: Array = plain.copy()

    def consider(tried: Array) -> None:
        nonlocal best, scales
        meant = nearest_codes(groups, tried, bits) * tried.astype(np.float32)[..., None]
        error = _weighted_error(groups, meant, weights)
        better = (error < best) & np.isfinite(tried)
        scales, best = np.where(better, tried, scales), np.where(better, error, best)

    with np.errstate(all="ignore"):
        consider(plain)
        for factor in _FACTORS[bits].astype(np.float32):
            tried = plain.astype(np.float32) * factor
            consider(tried.astype(np.float16))
            if bits == 4:
                consider((-tried).astype(np.float16))
        for _ in range(_REFITS):
            codes = nearest_codes(groups, scales, bits)
            fitted = _dot(codes, groups, weights) / _dot(codes, codes, weights)
            consider(fitted.astype(np.float16))
    return scales


def search_blocks(w: Array, block: int, power: Array | None = None) -> tuple[Array, Array]:
    """Block scales (uint8) and row factors (float32) of low-power blockwise weights.

    The factors are plain rounding's; of the block scales, all whole numbers are tried.
    """
    rows, cols = w.shape
    scales, factors = np.ones((rows, cols // block), np.uint8), np.zeros(rows, np.float32)
    weights = _group_weights(power, cols, block)
    for part in _parts(rows, cols):
        blocks = np.ascontiguousarray(w[part], np.float32).reshape(-1, cols // block, block)
        factors[part] = np.abs(needed_block_scales(blocks).max(axis=1)) / np.float32(LARGEST_SCALE)
        best = np.full(blocks.shape[:2], np.inf, np.float32)
        for whole in range(1, LARGEST_SCALE + 1):
            step = np.broadcast_to((factors[part] * np.float32(whole))[:, None], best.shape)
            meant = nearest_codes(blocks, step, 4) * step[..., None]
            error = _weighted_error(blocks, meant, weights)
            scales[part] = np.where(error < best, np.uint8(whole), scales[part])
            best = np.minimum(best, error)
    return scales, factors


def nearest_codes(groups: Array, scales: Array, bits: int) -> Array:
    """The codes (as float32) of ``[rows, groups, columns]``; those of scale 0 are 0."""
    steps = scales.astype(np.float32)[..., None]
    with np.errstate(all="ignore"):
        codes = groups * np.where(steps == 0, np.float32(0), 1 / steps)
        np.rint(codes, out=codes)
        return np.clip(codes, *LIMITS[bits], out=codes)


def _weighted_error(groups: Array, meant: Array, weights: Array) -> Array:
    meant -= groups
    return _dot(meant, meant, weights)


def _dot(a: Array, b: Array, weights: Array) -> Array:
    """Of the columns of each group, weighted."""
    total: Array = np.einsum("rgk,rgk,gk->rg", a, b, weights)
    return total


def _group_weights(power: Array | None, cols: int, group: int) -> Array:
    every = np.ones(cols) if power is None else power + power.mean() * 1e-6
    return every.astype(np.float32).reshape(cols // group, group)


def _parts(rows: int, cols: int) -> Iterator[slice]:
    step = max(1, _AT_ONCE // cols)
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))
