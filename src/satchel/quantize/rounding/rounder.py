"""Chooses and applies a way of rounding."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.encodings.encoding import Encoding
from satchel.encodings.packing import pack_blocks, pack_quantized
from satchel.errors import RecipeError
from satchel.quantize.affine import QuantizedWeight
from satchel.quantize.blockwise import dequantize_blocks
from satchel.quantize.moments import InputMoments
from satchel.quantize.rounding.gptq import ErrorFeedback
from satchel.quantize.rounding.search import nearest_codes, search_blocks, search_scales
from satchel.quantize.scale_form import ANY, ScaleForm

Array = NDArray[Any]
MomentsOf = Callable[[str], InputMoments | None]

PLAIN, SEARCH, GPTQ = "plain", "search", "gptq"
ROUNDINGS = (PLAIN, SEARCH, GPTQ)
# How much every channel of a table of embeddings counts beside what the head, whose weight it is
# too, sees of it: this times the head's mean.
_EMBEDDING_SHARE = 1.0


def check_rounding(name: str | None, calibrated: bool) -> str:
    """The way of rounding, by default the best there is.

    >>> check_rounding(None, calibrated=True)
    'gptq'
    """
    if name is None:
        return GPTQ if calibrated else PLAIN
    if name not in ROUNDINGS:
        raise RecipeError(f"there is no rounding {name!r}", f"Use {', '.join(ROUNDINGS)}.")
    if name == GPTQ and not calibrated:
        raise RecipeError(
            "the rounding gptq needs to know what the layers see",
            "Give a text with --calibrate, or use the rounding search.",
        )
    return name


@dataclass(frozen=True)
class Rounded:
    """Codes (int8), scales (float16, or uint8 with row factors) of some rows of a weight."""

    encoding: Encoding
    codes: Array
    scales: Array
    factors: Array | None = None

    def floats(self) -> Array:
        if self.factors is not None:
            return dequantize_blocks(self.codes, self.scales, self.factors)
        return QuantizedWeight(self.codes, self.scales).floats()

    def packed(self) -> tuple[Array, Array]:
        """In the form of ``pack_matrix``."""
        if self.factors is not None:
            return pack_blocks(self.codes, self.scales, self.factors)
        return pack_quantized(self.encoding.layout, QuantizedWeight(self.codes, self.scales))

    @property
    def finite(self) -> bool:
        factors = self.scales if self.factors is None else self.factors
        return bool(np.isfinite(factors).all())


class Rounder:
    """Rounds the rows of weights, given what their inputs are like."""

    def __init__(
        self, name: str, moments_of: MomentsOf, threads: int = 1, form: ScaleForm = ANY
    ) -> None:
        self._name, self._form = name, form
        self._moments_of = moments_of
        self._threads = max(1, threads)
        self._latest: tuple[InputMoments, bool, ErrorFeedback] | None = None

    def applies(self, encoding: Encoding) -> bool:
        if self._name == PLAIN:  # which the native core does, with scales of any form
            return self._form != ANY and encoding.layout == "q4"
        return encoding.layout in ("q4", "q8", "lpbq4")

    def round(self, name: str, role: str, rows: Array, encoding: Encoding) -> Rounded:
        """Some rows of the weight ``name``, which is used in this role."""
        moments = self._moments_of(name)
        # A tied table's rows are also what the first layer gets, where all channels count.
        shared = role == "embedding" and moments is not None
        power = None
        if moments is not None:
            power = moments.power
            power = power + power.mean() * _EMBEDDING_SHARE if shared else power
        feedback = None
        if self._name == GPTQ and moments is not None:
            feedback = self._feedback(moments, shared)
        step = -(-len(rows) // self._threads)
        parts = [rows[at : at + step] for at in range(0, len(rows), step)]
        with ThreadPoolExecutor(len(parts)) as pool:
            return _joined(
                pool.map(lambda part: self._round(part, encoding, power, feedback), parts), encoding
            )

    def _round(
        self, rows: Array, encoding: Encoding, power: Array | None, feedback: ErrorFeedback | None
    ) -> Rounded:
        bits, group = (8 if encoding.layout == "q8" else 4), encoding.group
        factors = None
        if encoding.layout == "lpbq4":
            scales, factors = search_blocks(rows, group, power)
            steps = scales.astype(np.float32) * factors[:, None]
        else:
            quick = self._name == PLAIN
            scales = search_scales(rows, bits, group, power, self._form, quick)
            steps = scales.astype(np.float32)
        if feedback is not None:
            codes = feedback.round(rows, steps, bits)
        else:
            grouped = np.asarray(rows, np.float32).reshape(len(rows), -1, group)
            codes = nearest_codes(grouped, steps, bits).reshape(rows.shape).astype(np.int8)
        return Rounded(encoding, codes, scales, factors)

    def _feedback(self, moments: InputMoments, shared: bool) -> ErrorFeedback:
        """Weights with the same input come one after the other, so the latest is kept."""
        kept = self._latest
        if kept is None or kept[0] is not moments or kept[1] != shared:
            second = moments.second
            if shared:
                second = second + np.eye(len(second)) * moments.power.mean() * _EMBEDDING_SHARE
            self._latest = kept = moments, shared, ErrorFeedback(second)
        return kept[2]


def _joined(parts: Iterable[Rounded], encoding: Encoding) -> Rounded:
    done = list(parts)
    factors = [part.factors for part in done if part.factors is not None]
    return Rounded(
        encoding,
        np.concatenate([part.codes for part in done]),
        np.concatenate([part.scales for part in done]),
        np.concatenate(factors) if factors else None,
    )
