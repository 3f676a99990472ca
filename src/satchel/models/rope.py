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
    """inverse_frequencies has one entry per rotated pair; cos and sin are times ``scale``."""

    inverse_frequencies: NDArray[np.float32]
    scale: float = 1.0


def read_rope(fields: ConfigReader, head_dim: int, default_theta: float = 10000.0) -> Rope:
    """Reads ``rope_theta`` + ``rope_scaling``, or ``rope_parameters`` as newer configs have it."""
    theta = fields.number("rope_theta", default_theta)
    parameters = fields.optional("rope_parameters")
    scaling = fields.optional("rope_scaling")
    settings: dict[str, Any] = dict(parameters or scaling or {})
    theta = float(settings.pop("rope_theta", theta))
    kind = settings.pop("rope_type", settings.pop("type", "default"))
    settings.pop("type", None)
    exponents = np.arange(0, head_dim, 2, dtype=np.float64) / head_dim
    inverse = theta**-exponents
    if kind == "default":
        pass
    elif kind == "linear":
        inverse = inverse / _take(settings, "factor")
    elif kind == "llama3":
        inverse = _llama3(inverse, settings)
    else:
        raise ConfigError(f"rotary scaling of the type {kind!r} is not supported")
    if settings:
        raise ConfigError(f"the rotary scaling field {sorted(settings)[0]!r} is not understood")
    return Rope(inverse.astype(np.float32))


def _take(settings: dict[str, Any], name: str) -> float:
    value = settings.pop(name, None)
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
