"""Scales of 4-bit groups as whole multiples of one step, in plain numpy.

The groups of a run of columns have scales of -15 to 16 times the run's step. A code times such a
number fits in a byte, so that kernels for many tokens multiply bytes and scale a whole run at once
(``native/kernels/step_bytes.inl``). The best among these scales is better than the one that a
group's largest weight needs; ``rounding``, which searches for better ones, takes any size.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.quantize.blockwise import sum_of_groups

Array = NDArray[Any]

_RUN_COLUMNS = 1024
_LARGEST_MULTIPLE, _LOWEST_MULTIPLE = 16, -15
# Multiples of smaller steps are not exact in float16; larger ones overflow it.
_SMALLEST_STEP, _LARGEST_SCALE = np.float32(2.0**-18), np.float32(65504)
# Scales of their own stay where the loss of multiples would be more than this many times theirs,
# as in runs that lie on a grid already, and where a group needs less than so many steps.
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

    >>> w = np.array([[[-8.0, 1.0] * 4, [3.5, -4.0] * 4, [0.0] * 8]], np.float32)
    >>> step_scales(w).tolist()
    [[1.0, 0.5, 0.0]]
    """
    scales = [_run_scales(groups[:, run]) for run in _runs(groups.shape[1], groups.shape[2])]
    return np.concatenate(scales, axis=1)


def _run_scales(groups: Array) -> Array:
    needed = needed_scales(groups)
    with np.errstate(all="ignore"):
        own = needed.astype(np.float16)
        step = _run_steps(needed)
        multiples, loss = _best_multiples(groups, needed, step)
        own_loss = _in_order(_losses(groups, own.astype(np.float32)))
        taken = _fits_steps(needed, step)
        taken &= loss <= _WORST_LOSS_RATIO * own_loss
        on_steps = (multiples * step[:, None]).astype(np.float16)
    scales: Array = np.where(taken[:, None], on_steps, own)
    return scales


def _runs(groups: int, group: int) -> Iterator[slice]:
    """The runs of so many groups of so many columns."""
    in_run = max(1, _RUN_COLUMNS // group)
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


def _tried_multiples(needed: Array, step: Array) -> Iterator[Array]:
    """Multiples (float32) of ``[rows]`` steps for ``[rows, groups]`` needed scales.

    The largest weight becomes -8 with the one sign, and 7 with the other.
    """
    largest = needed == _largest_of(needed)[:, None]
    ratio = np.where(needed == 0, np.float32(0), needed / step[:, None])
    for exact in (ratio, ratio * np.float32(-8.0 / 7.0)):
        most = np.where(exact < 0, np.float32(-_LOWEST_MULTIPLE), np.float32(_LARGEST_MULTIPLE))
        sign = np.where(exact < 0, np.float32(-1), np.float32(1))
        whole = np.ceil(np.abs(exact))
        for off in range(_TRIED_BELOW):
            size = np.minimum(np.maximum(whole - np.float32(off), np.float32(1)), most)
            tried = np.where(largest, np.float32(_LARGEST_MULTIPLE), sign * size)
            yield np.where(needed == 0, np.float32(0), tried)


def _best_multiples(groups: Array, needed: Array, step: Array) -> tuple[Array, Array]:
    """Multiples of the least loss, and each row's loss."""
    multiples = np.zeros(needed.shape, np.float32)
    least = np.full(needed.shape, np.inf)
    for tried in _tried_multiples(needed, step):
        loss = _losses(groups, tried * step[:, None])
        better = loss < least
        multiples, least = np.where(better, tried, multiples), np.where(better, loss, least)
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
