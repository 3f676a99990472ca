"""Random numbers: functions of a seed, which becomes an input of the program.

They are not torch's own numbers, but as evenly spread: each is a hash of the seed, of the operator
and of its place.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

from satchel.graph.ir import DType, Shape, Sym, Value
from satchel.torch.lowering import Lowering, Number
from satchel.torch.operators.registry import OperatorError, aten

_MASK = (1 << 32) - 1
_STEP = 0x3C6EF373  # odd, so that no two places have the same number
_TWO_24 = float(1 << 24)


def _hash(low: Lowering, x: Value) -> Value:
    """Whole numbers of 32 bits (in 64) to others: shifts and products, each of them invertible."""

    def number(value: int) -> Value:
        return low.number(value, DType.i64)

    for shift, factor in ((16, 0x21F0AAAD), (15, 0x735A2D97), (15, 1)):
        x = low.integer(x, low.integer(x, number(shift), kind="shr"), kind="xor")
        if factor != 1:
            x = low.integer(low.mul(x, number(factor)), number(_MASK), kind="and")
    return x


def _seed(low: Lowering) -> Value:
    """The program's input for all random numbers, hashed apart for each operator."""
    if low.seed is None:
        names = {value.name for value in low.builder.graph.inputs}
        name = "seed" if "seed" not in names else "random_seed"
        low.seed = low.builder.input(name, (), DType.i64)
        warnings.warn(
            f"the module makes random numbers: the program has an input {name!r} for them, a whole "
            "number, and the same one gives the same numbers",
            stacklevel=2,
        )
    low.random_operators += 1
    own = low.integer(low.seed, low.number(_MASK, DType.i64), kind="and")
    salt = low.number(low.random_operators * 0x9E3779B1 & _MASK, DType.i64)
    return _hash(low, low.integer(_hash(low, own), salt, kind="xor"))


def uniform(low: Lowering, shape: Shape) -> Value:
    """Numbers of 24 bits from 0 to 1, without 1."""
    if any(isinstance(d, Sym) for d in shape):
        raise OperatorError("as many random numbers as a symbolic size says")
    count = math.prod(d for d in shape if isinstance(d, int))
    steps = np.arange(1, count + 1, dtype=np.int64) * _STEP & _MASK
    places = low.constant(steps, "places")
    mixed = low.integer(low.add(places, _seed(low)), low.number(_MASK, DType.i64), kind="and")
    whole = low.integer(_hash(low, mixed), low.number(8, DType.i64), kind="shr")
    return low.reshape(low.affine(low.cast(whole, DType.f32), scale=1 / _TWO_24), shape)


def _logarithm(low: Lowering, share: Value) -> Value:
    """Of 1 - share, which is never 0."""
    return low.log(low.affine(share, scale=-1.0, shift=1.0))


def _gumbel(low: Lowering, shape: Shape) -> Value:
    """What makes the greatest of scores a choice by their probability."""
    inner = low.affine(_logarithm(low, uniform(low, shape)), scale=-1.0, shift=1e-20)
    return low.affine(low.log(inner), scale=-1.0)


@aten("rand", "rand_like")
def rand(low: Lowering, *_arguments: Any, **_options: Any) -> Value:
    return low.cast(uniform(low, low.shape), low.dtype)


@aten("uniform")
def uniform_between(
    low: Lowering, x: Value, start: float = 0.0, stop: float = 1.0, **_options: Any
) -> Value:
    return low.affine(uniform(low, low.shape), scale=stop - start, shift=start)


def normal_numbers(low: Lowering, shape: Shape) -> Value:
    """Box and Muller's: a length and an angle."""
    length = low.sqrt(low.affine(_logarithm(low, uniform(low, shape)), scale=-2.0))
    return low.mul(length, low.cos(low.affine(uniform(low, shape), scale=2 * math.pi)))


@aten("randn", "randn_like")
def randn(low: Lowering, *_arguments: Any, **_options: Any) -> Value:
    return normal_numbers(low, low.shape)


@aten("normal_functional")
def normal(low: Lowering, x: Value, mean: float = 0.0, deviation: float = 1.0, **_: Any) -> Value:
    return low.affine(normal_numbers(low, low.shape), scale=deviation, shift=mean)


@aten("randint", "randint_like")
def randint(low: Lowering, *arguments: Any, **_options: Any) -> Value:
    given = [a for a in arguments if isinstance(a, int)]
    first, last = (0, given[0]) if len(given) == 1 else given[:2]
    numbers = low.affine(uniform(low, low.shape), scale=float(last - first), shift=float(first))
    return low.cast(low.floor(numbers), low.dtype)


@aten("randperm")
def randperm(low: Lowering, count: int, **_options: Any) -> Value:
    order = low.argsort(uniform(low, (low.known(count, "randperm"),)), axis=0)
    return low.cast(order, low.dtype)


@aten("bernoulli")
def bernoulli(low: Lowering, x: Value, share: Any = None, **_options: Any) -> Value:
    limit = low.floats(x) if not isinstance(share, float) else low.number(share)
    hit = low.compare(uniform(low, low.shape), limit, kind="lt")
    return low.cast(hit, low.dtype)


@aten("multinomial")
def multinomial(
    low: Lowering, chances: Value, count: int, replacement: bool = False, **_options: Any
) -> Value:
    """By the greatest of logarithms and Gumbel's noise; without replacement the greatest few."""
    scores = low.log(low.floats(chances))
    axis = len(chances.shape) - 1
    wanted = low.known(count, "multinomial")
    if not replacement:
        noisy = low.add(scores, _gumbel(low, chances.shape))
        order = low.argsort(noisy, axis=axis, descending=1)
        return low.cast(low.slice(order, axis, 0, wanted), low.dtype)
    rows = low.reshape(scores, (*chances.shape[:-1], 1, chances.shape[-1]))
    noisy = low.add(rows, _gumbel(low, (*chances.shape[:-1], wanted, chances.shape[-1])))
    return low.cast(low.argmax(noisy, axis=axis + 1, keepdims=0), low.dtype)


@aten("dropout", "native_dropout")
def dropout(low: Lowering, x: Value, share: Number, train: bool | None = True) -> Any:
    """What is left on drops numbers by the seed; torch's second result says which are kept."""
    pair = low.operator == "native_dropout"
    if not train or not share:
        return [x, None] if pair else x
    kept = low.compare(uniform(low, x.shape), low.number(float(share)), kind="ge")
    scale = 0.0 if share == 1 else 1 / (1 - float(share))
    numbers = low.affine(low.cast(kept, DType.f32), scale=scale)
    result = low.mul(x, numbers)
    return [result, kept] if pair else result
