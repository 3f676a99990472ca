"""Frequencies of rotary position embeddings, from either way of writing them in a config.

Scalings: linear, llama3 and yarn have fixed frequencies; those of longrope and dynamic ones depend
on the program's context.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.errors import ConfigError
from satchel.models.config import ConfigReader


@dataclass(frozen=True)
class Rope:
    """Frequencies, one per rotated pair of values; cosines and sines are times ``scale``."""

    inverse_frequencies: NDArray[np.float32]
    scale: float = 1.0
    # Instead of those, in programs whose context is above ``switch``: a function of the context.
    longer: Callable[[int], NDArray[np.float32]] | None = None
    switch: int = 0
    extended: int = 0  # the context that the scaling was made for, where it says so

    @property
    def dim(self) -> int:
        """How many values of a head are rotated."""
        return 2 * len(self.inverse_frequencies)

    def frequencies(self, context: int) -> NDArray[np.float32]:
        """Those of a program with this context: one set for all its tokens.

        The cache holds keys that are rotated already, so the set cannot change on the way.
        """
        if self.longer is not None and context > self.switch:
            return self.longer(context)
        return self.inverse_frequencies


def plain_rope(dim: int, theta: float = 10000.0) -> Rope:
    """The rotary embedding without any scaling."""
    if dim < 2 or dim % 2 or theta <= 0:
        raise ConfigError(f"{dim} values cannot be rotated with a theta of {theta}")
    return Rope(_inverse(dim, theta).astype(np.float32))


def read_rope(
    fields: ConfigReader,
    head_dim: int,
    default_theta: float = 10000.0,
    default_partial: float | None = None,
    context: int = 0,
    original: int = 0,
) -> Rope:
    """Reads ``rope_theta`` + ``rope_scaling``, or ``rope_parameters`` as newer configs have it.

    ``default_partial`` is for models that can rotate only a part of each head. ``context`` is
    the model's own, and ``original`` the one before extension of those that may have longrope.
    """
    theta = fields.number("rope_theta", default_theta)
    parameters, scaling = fields.optional("rope_parameters"), fields.optional("rope_scaling")
    partial = default_partial
    if partial is not None:
        partial = fields.number("partial_rotary_factor", partial)
    return rope_of(scaling or parameters or {}, head_dim, theta, partial, context, original)


def rope_of(
    given: Any,
    head_dim: int,
    theta: float,
    partial: float | None = None,
    context: int = 0,
    original: int = 0,
) -> Rope:
    """The rotary embedding that a dictionary describes; ``theta`` and ``partial`` are defaults."""
    if not isinstance(given, dict):
        raise ConfigError(f"the rotary scaling must be a dictionary, not {given!r}")
    settings = {name: value for name, value in given.items() if value is not None}
    theta = _take(settings, "rope_theta", theta)
    share = _take(settings, "partial_rotary_factor", 1.0 if partial is None else partial)
    if share > 1 or (partial is None and share != 1):
        raise ConfigError(f"'partial_rotary_factor' {share} is not supported for this model")
    kind = settings.pop("rope_type", settings.pop("type", "default"))
    settings.pop("type", None)
    plain = plain_rope(int(head_dim * share), theta)
    inverse = _inverse(plain.dim, theta)
    if kind == "default":
        rope = plain
    elif kind == "linear":
        rope = Rope((inverse / _take(settings, "factor")).astype(np.float32))
    elif kind == "llama3":
        rope = Rope(_llama3(inverse, settings).astype(np.float32))
    elif kind == "yarn":
        rope = _yarn(inverse, theta, settings, context)
    elif kind == "dynamic":
        rope = _dynamic(plain, theta, settings, context)
    elif kind == "longrope" and original:
        rope = _longrope(inverse, settings, original, context)
    else:
        raise ConfigError(f"rotary scaling of the type {kind!r} is not supported")
    if settings:
        raise ConfigError(f"the rotary scaling field {sorted(settings)[0]!r} is not understood")
    return rope


def _inverse(dim: int, theta: float) -> NDArray[np.float64]:
    inverse: NDArray[np.float64] = theta ** -(np.arange(0, dim, 2, dtype=np.float64) / dim)
    return inverse


def _take(settings: dict[str, Any], name: str, default: float | None = None) -> float:
    value = settings.pop(name, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0:
        raise ConfigError(f"the rotary scaling field {name!r} must be a positive number")
    return float(value)


def _llama3(inverse: NDArray[np.float64], settings: dict[str, Any]) -> NDArray[np.float64]:
    """Slow frequencies are divided by factor, fast ones kept, those between are blended."""
    factor = _take(settings, "factor")
    low, high = _take(settings, "low_freq_factor"), _take(settings, "high_freq_factor")
    original = _take(settings, "original_max_position_embeddings")
    if high <= low:
        raise ConfigError("'high_freq_factor' must be larger than 'low_freq_factor'")
    wavelengths = 2 * math.pi / inverse
    kept_share = np.clip((original / wavelengths - low) / (high - low), 0.0, 1.0)
    blended: NDArray[np.float64] = (1 - kept_share) * inverse / factor + kept_share * inverse
    return blended


def _longrope(
    inverse: NDArray[np.float64], settings: dict[str, Any], original: int, context: int
) -> Rope:
    """Each frequency has a divisor of its own: one for short and one for long contexts."""
    settings.pop("original_max_position_embeddings", None)  # the model's own field is the one
    factor = _take(settings, "factor", context / original)
    scale = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0
    scale = _take(settings, "attention_factor", scale)
    short, long = (
        (inverse / _divisors(settings, name, len(inverse))).astype(np.float32)
        for name in ("short_factor", "long_factor")
    )
    return Rope(short, scale, lambda _context: long, original)


def _yarn(
    inverse: NDArray[np.float64], theta: float, settings: dict[str, Any], context: int
) -> Rope:
    """Fast frequencies are kept, slow ones divided by factor; a ramp over their index between.

    How often a frequency turns within the original context says which it is.
    """
    dim = 2 * len(inverse)
    original = _take(settings, "original_max_position_embeddings", context or None)
    factor = _take(settings, "factor", max(1.0, context / original))
    truncate = settings.pop("truncate", True)
    settings.pop("finetuned", None)  # whether the model was trained further, and not how it runs

    def index_of(turns: float) -> float:
        return dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))

    first, last = (
        index_of(_take(settings, name, turns))
        for name, turns in (("beta_fast", 32), ("beta_slow", 1))
    )
    if truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, dim - 1)
    width = last - first or 0.001
    divided = np.clip((np.arange(len(inverse)) - first) / width, 0.0, 1.0)
    frequencies = inverse * (1 - divided) + inverse / factor * divided
    scale = _yarn_scale(factor, settings)
    return Rope(frequencies.astype(np.float32), scale, extended=int(original * factor))


def _yarn_scale(factor: float, settings: dict[str, Any]) -> float:
    """What sharpens attention over the longer context, unless the configuration gives it."""

    def of(share: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * share * math.log(factor) + 1.0

    whole, all_dims = settings.pop("mscale", None), settings.pop("mscale_all_dim", None)
    usual = of(whole) / of(all_dims) if whole and all_dims else of(1.0)
    return _take(settings, "attention_factor", usual)


def _dynamic(plain: Rope, theta: float, settings: dict[str, Any], context: int) -> Rope:
    """Plain up to the model's context; beyond, theta grows with the context of the program."""
    factor = _take(settings, "factor")
    original = int(_take(settings, "original_max_position_embeddings", context or None))
    dim = plain.dim

    def longer(length: int) -> NDArray[np.float32]:
        stretch = factor * length / original - (factor - 1)
        return _inverse(dim, theta * stretch ** (dim / (dim - 2))).astype(np.float32)

    extended = int(original * factor)
    return Rope(plain.inverse_frequencies, 1.0, longer, original, extended)


def _divisors(settings: dict[str, Any], name: str, count: int) -> NDArray[np.float32]:
    values = settings.pop(name, None)
    if not isinstance(values, list) or len(values) != count:
        raise ConfigError(f"the rotary scaling field {name!r} must be a list of {count} numbers")
    if not all(isinstance(value, (int, float)) and value > 0 for value in values):
        raise ConfigError(f"the rotary scaling field {name!r} has a value that is not above zero")
    return np.array(values, np.float32)
