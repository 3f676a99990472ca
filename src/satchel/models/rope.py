"""Frequencies of rotary position embeddings, from either way of writing them in a config."""

from __future__ import annotations

import math
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
    # Longrope: these instead, in programs whose context is above ``switch``.
    long_inverse_frequencies: NDArray[np.float32] | None = None
    switch: int = 0

    @property
    def dim(self) -> int:
        """How many values of a head are rotated."""
        return 2 * len(self.inverse_frequencies)

    def frequencies(self, context: int) -> NDArray[np.float32]:
        """Those of a program with this context: one set for all its tokens.

        The cache holds keys that are rotated already, so the set cannot change on the way.
        """
        long = self.long_inverse_frequencies
        return long if long is not None and context > self.switch else self.inverse_frequencies


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
    lengths: tuple[int, int] | None = None,
) -> Rope:
    """Reads ``rope_theta`` + ``rope_scaling``, or ``rope_parameters`` as newer configs have it.

    ``default_partial`` is for models that can rotate only a part of each head. ``lengths``, the
    contexts before and after extension, is for those that may have longrope.
    """
    theta = fields.number("rope_theta", default_theta)
    parameters, scaling = fields.optional("rope_parameters"), fields.optional("rope_scaling")
    partial = default_partial
    if partial is not None:
        partial = fields.number("partial_rotary_factor", partial)
    return rope_of(scaling or parameters or {}, head_dim, theta, partial, lengths)


def rope_of(
    given: Any,
    head_dim: int,
    theta: float,
    partial: float | None = None,
    lengths: tuple[int, int] | None = None,
) -> Rope:
    """The rotary embedding that a dictionary describes; ``theta`` and ``partial`` are defaults."""
    if not isinstance(given, dict):
        raise ConfigError(f"the rotary scaling must be a dictionary, not {given!r}")
    settings = {name: value for name, value in given.items() if value is not None}
    theta = _take(settings, "rope_theta", theta)
    share = _take(settings, "partial_rotary_factor", partial or 1.0)
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
    elif kind == "longrope" and lengths:
        rope = _longrope(inverse, settings, *lengths)
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
    return Rope(short, scale, long, original)


def _divisors(settings: dict[str, Any], name: str, count: int) -> NDArray[np.float32]:
    values = settings.pop(name, None)
    if not isinstance(values, list) or len(values) != count:
        raise ConfigError(f"the rotary scaling field {name!r} must be a list of {count} numbers")
    if not all(isinstance(value, (int, float)) and value > 0 for value in values):
        raise ConfigError(f"the rotary scaling field {name!r} has a value that is not above zero")
    return np.array(values, np.float32)
