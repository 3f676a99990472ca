"""Scales by trying some, with errors weighted by how strong each input channel is.

Plain rounding takes the scale that its largest weight needs. A weight whose input is nearly
always small may just as well be clipped, if the others then lie on finer steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.encodings.packing import plain_scales
from satchel.encodings.steps import needed_scales as needed_group_scales
from satchel.quantize.blockwise import LARGEST_SCALE, needed_scales
from satchel.quantize.scale_form import ANY, ScaleForm

Array = NDArray[Any]

# Multiples of the scale that the largest weight needs. With 4 bits both signs are tried, since
# there is one more code below zero than above it.
_FACTORS = {4: np.linspace(0.65, 1.15, 17), 8: np.linspace(0.9, 1.0, 6)}
# With scales above 0 alone, the largest weight becomes -8, 7 or something between.
_QUICK_FACTORS = np.array([8 / 7.5, 8 / 7])
_REFITS = 2
_AT_ONCE = 1 << 16  # weights, so that they stay in the cache of a core
LIMITS = {4: (-8, 7), 8: (-127, 127)}


def search_scales(
    w: Array,
    bits: int,
    group: int,
    power: Array | None = None,
    form: ScaleForm = ANY,
    quick: bool = False,
) -> Array:
    """Scales (float16) ``[rows, cols / group]`` of the least weighted squared error found.

    ``power`` is the mean square of every input channel; without it all count alike. Only scales of
    the ``form`` are tried, and of them a few if it is to be ``quick``.

    >>> w = np.array([[1.0, 0.1, -0.1, 0.2, 0.1, -0.2, 0.1, 0.2]], np.float32)
    >>> float(search_scales(w, 4, 8, np.array([0.001, 1, 1, 1, 1, 1, 1, 1.0]))[0, 0]) < 0.1
    True
    """
    rows, cols = w.shape
    scales = np.empty((rows, cols // group), np.float16)
    weights = _group_weights(power, cols, group)
    for part in _parts(rows, cols):
        groups = np.ascontiguousarray(w[part], np.float32).reshape(-1, cols // group, group)
        scales[part] = _search(groups, weights, bits, form, quick)
    return scales


def _search(groups: Array, weights: Array, bits: int, form: ScaleForm, quick: bool) -> Array:
    # Of any size: multiples of a step, as plain rounding takes, would lose an eighth of the gain.
    plain = form.nearest(needed_group_scales(groups)) if bits == 4 else plain_scales(groups, bits)
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
        for factor in (_QUICK_FACTORS if quick else _FACTORS[bits]).astype(np.float32):
            tried = plain.astype(np.float32) * factor
            consider(form.nearest(tried))
            if bits == 4 and not form.above_zero:
                consider((-tried).astype(np.float16))
        for _ in range(0 if quick else _REFITS):
            codes = nearest_codes(groups, scales, bits)
            fitted = _dot(codes, groups, weights) / _dot(codes, codes, weights)
            consider(form.nearest(fitted))
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
        factors[part] = np.abs(needed_scales(blocks).max(axis=1)) / np.float32(LARGEST_SCALE)
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
