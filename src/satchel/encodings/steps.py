"""Scales of 4-bit groups as whole multiples of one step, in plain numpy.

The groups of a run of columns have scales of -15 to 16 times the run's step. A code times such a
number fits in a byte, so that kernels for many tokens multiply bytes and scale a whole run at once
(``native/kernels/step_bytes.inl``). Where that is too coarse, the layout ``q4_steps``, which stores
scales as bytes and steps, has multiples of -127 to 127 of a finer step. The best among these scales
is better than the one that a group's largest weight needs; ``rounding``, which searches for better
ones, takes any size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.quantize.blockwise import sum_of_groups

Array = NDArray[Any]

RUN_COLUMNS = 1024
_LARGEST_MULTIPLE, _LOWEST_MULTIPLE = 16, -15
_LARGEST_FINE = 127
# Multiples of smaller steps are not exact in float16; larger ones overflow it.
_SMALLEST_STEP, _LARGEST_SCALE = np.float32(2.0**-18), np.float32(65504)
_SMALLEST_HALF = np.float32(2.0**-24)
# Steps are too coarse where their loss would be more than this many times that of scales of their
# own, as in runs that lie on a grid already, and where a group needs less than so many steps.
_WORST_LOSS_RATIO = 2.0
_FEWEST_STEPS = np.float32(1)
_TRIED_BELOW = 3  # multiples, from what the largest weight needs downwards


def needed_scales(groups: Array) -> Array:
    """The scale, in float32, with which each group's weight of largest magnitude becomes -8."""
    where = np.abs(groups).argmax(axis=2, keepdims=True)
    extreme: Array = np.take_along_axis(groups, where, axis=2)[..., 0] / np.float32(-8)
    return extreme


def step_scales(groups: Array) -> Array:
    """Scales (float16) of ``[rows, groups, columns]``, float32; see ``native/kernels/pack.h``.

    Those of runs for which steps are too coarse are scales of their own.

    >>> w = np.array([[[-8.0, 1.0] * 4, [3.5, -4.0] * 4, [0.0] * 8]], np.float32)
    >>> step_scales(w).tolist()
    [[1.0, 0.5, 0.0]]
    """
    scales = []
    for run in runs_of(groups.shape[1], groups.shape[2]):
        needed = needed_scales(groups[:, run])
        multiples, steps, fits = _coarse_multiples(groups[:, run], needed)
        with np.errstate(all="ignore"):
            on_steps = (multiples * steps[:, None]).astype(np.float16)
            scales.append(np.where(fits[:, None], on_steps, needed.astype(np.float16)))
    return np.concatenate(scales, axis=1)


def step_multiples(groups: Array) -> tuple[Array, Array]:
    """Multiples (int8) ``[rows, groups]`` and steps (float32) ``[rows, runs]``, for all runs.

    Runs for which the steps of ``step_scales`` are too coarse have finer ones.

    >>> multiples, steps = step_multiples(np.array([[[-8.0] * 8, [0.25] * 8]], np.float32))
    >>> multiples.tolist(), steps.tolist()
    ([[114, -4]], [[0.0087890625]])
    """
    found, all_steps = [], []
    for run in runs_of(groups.shape[1], groups.shape[2]):
        needed = needed_scales(groups[:, run])
        multiples, steps, fits = _coarse_multiples(groups[:, run], needed)
        finer, fine_steps = _fine_multiples(groups[:, run], needed)
        with np.errstate(invalid="ignore"):  # of weights that are not finite
            found.append(np.where(fits[:, None], multiples, finer).astype(np.int8))
        all_steps.append(np.where(fits, steps, fine_steps))
    return np.concatenate(found, axis=1), np.stack(all_steps, axis=1)


def multiplied(multiples: Array, steps: Array, group: int) -> Array:
    """The scales (float16, exactly) that ``step_multiples`` stand for.

    >>> multiplied(np.array([[16, -3]], np.int8), np.array([[0.25]], np.float32), 32).tolist()
    [[4.0, -0.75]]
    """
    by_group = np.repeat(steps, RUN_COLUMNS // group, axis=1)[:, : multiples.shape[1]]
    with np.errstate(all="ignore"):  # a file may hold anything
        scales: Array = (multiples * by_group).astype(np.float16)
    return scales


def _coarse_multiples(groups: Array, needed: Array) -> tuple[Array, Array, Array]:
    """Multiples from -15 to 16, steps, and of which rows they are good enough."""
    with np.errstate(all="ignore"):
        own = needed.astype(np.float16).astype(np.float32)
        steps = _run_steps(needed)
        tried = _tried_multiples(needed, steps, _LOWEST_MULTIPLE, np.float32(_LARGEST_MULTIPLE))
        largest = needed == _largest_of(needed)[:, None]
        forced = (
            np.where(largest & (needed != 0), np.float32(_LARGEST_MULTIPLE), one) for one in tried
        )
        multiples, loss = _best_multiples(groups, forced, steps)
        fits = _fits_steps(needed, steps)
        fits &= loss <= _WORST_LOSS_RATIO * _in_order(_losses(groups, own))
    return multiples, steps, fits


def _fine_multiples(groups: Array, needed: Array) -> tuple[Array, Array]:
    """Multiples from -127 to 127, and steps of four bits, so that products are exact in float16."""
    with np.errstate(all="ignore"):
        exact = np.abs(_largest_of(needed)) / np.float32(_LARGEST_FINE)
        bits = exact.astype(np.float32).view(np.uint32)
        rounded_up = ((bits + np.uint32(0xFFFFF)) & np.uint32(0xFFF00000)).view(np.float32)
        units = np.maximum(np.ceil(rounded_up / _SMALLEST_HALF), np.float32(1))
        steps = (units * _SMALLEST_HALF).astype(np.float32)
        most = np.minimum(np.float32(_LARGEST_FINE), np.floor(_LARGEST_SCALE / steps))[:, None]
        tried = _tried_multiples(needed, steps, -most, most)
        multiples, _ = _best_multiples(groups, tried, steps)
    return multiples, steps


def runs_of(groups: int, group: int) -> Iterator[slice]:
    """The runs of so many groups of so many columns."""
    in_run = max(1, RUN_COLUMNS // group)
    return (slice(first, min(first + in_run, groups)) for first in range(0, groups, in_run))


def _run_steps(needed: Array) -> Array:
    """The steps (float32) of runs ``[rows, groups]`` with these needed scales.

    A sixteenth of the largest, to seven bits.

    >>> float(_run_steps(np.array([[-1.0, 16.03]], np.float32))[0])
    1.0
    """
    exact = _largest_of(needed) / np.float32(_LARGEST_MULTIPLE)
    bits = exact.astype(np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0xFFFF) + (bits >> 17 & 1)) & np.uint32(0xFFFE0000)
    steps: Array = rounded.astype(np.uint32).view(np.float32)
    return steps


def _largest_of(needed: Array) -> Array:
    """Of each run, the scale of largest magnitude: its group has the multiple 16."""
    where = np.abs(needed).argmax(axis=1, keepdims=True)
    largest: Array = np.take_along_axis(needed, where, axis=1)[:, 0]
    return largest


def _fits_steps(needed: Array, step: Array) -> Array:
    """Whether multiples of ``[rows]`` steps are exact in float16 and fine enough for all groups."""
    size = np.abs(step)
    exact = (size >= _SMALLEST_STEP) & (size * np.float32(_LARGEST_MULTIPLE) <= _LARGEST_SCALE)
    fine = (needed == 0) | (np.abs(needed) >= _FEWEST_STEPS * size[:, None])  # False for NaN
    fits: Array = exact & fine.all(axis=1)
    return fits


def _tried_multiples(
    needed: Array, step: Array, lowest: Array | float, highest: Array | float
) -> Iterator[Array]:
    """Multiples (float32) of ``[rows]`` steps for ``[rows, groups]`` needed scales.

    The largest weight becomes -8 with the one sign, and 7 with the other.
    """
    ratio = np.where(needed == 0, np.float32(0), needed / step[:, None])
    for exact in (ratio, ratio * np.float32(-8.0 / 7.0)):
        most = np.where(exact < 0, -np.float32(lowest), np.float32(highest))
        sign = np.where(exact < 0, np.float32(-1), np.float32(1))
        whole = np.ceil(np.abs(exact))
        for off in range(_TRIED_BELOW):
            size = np.minimum(np.maximum(whole - np.float32(off), np.float32(1)), most)
            yield np.where(needed == 0, np.float32(0), sign * size)


def _best_multiples(groups: Array, tried: Iterable[Array], step: Array) -> tuple[Array, Array]:
    """Multiples of the least loss, and each row's loss."""
    multiples = np.zeros(groups.shape[:2], np.float32)
    least = np.full(groups.shape[:2], np.inf)
    for one in tried:
        loss = _losses(groups, one * step[:, None])
        better = loss < least
        multiples, least = np.where(better, one, multiples), np.where(better, loss, least)
    return multiples, _in_order(least)


def _losses(groups: Array, scales: Array) -> Array:
    """Of each group, the sum of the errors' fourth powers: squares would clip more."""
    step = scales.astype(np.float32)[..., None]
    with np.errstate(all="ignore"):
        ratio = np.where(step == 0, np.float32(0), groups / step)
        meant = np.rint(np.clip(ratio, -8, 7)) * step
        squares = (groups.astype(np.float64) - meant.astype(np.float64)) ** 2
    return sum_of_groups(squares * squares)


def _in_order(losses: Array) -> Array:
    total: Array = np.zeros(len(losses))
    for g in range(losses.shape[1]):
        total = total + losses[:, g]
    return total
