"""Which tokens may follow: Whisper's rules, applied to the logits of a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from satchel.speech.tokens import Tokens

Logits = NDArray[np.float32]


@dataclass(frozen=True)
class Rules:
    """What is chosen from. ``first_latest``: the latest timestamp that a window may begin with."""

    tokens: Tokens
    unspoken: Sequence[int]
    blank: Sequence[int]
    timestamps: bool = True
    first_latest: int = 50  # 1 second

    def apply(self, logits: Logits, texts: Sequence[Sequence[int]]) -> None:
        """Rule out, in place, what may not follow each of the texts so far."""
        logits[:, list(self.unspoken)] = -np.inf
        begins = not texts[0]
        if begins:
            logits[:, list(self.blank)] = -np.inf
        if not self.timestamps:
            return
        for row, text in zip(logits, texts, strict=True):
            self._keep_pairs(row, text)
            if begins:
                row[: self.tokens.first_timestamp] = -np.inf
                row[self.tokens.first_timestamp + self.first_latest + 1 :] = -np.inf
            self._prefer_timestamps(row)

    def _keep_pairs(self, row: Logits, text: Sequence[int]) -> None:
        """Timestamps come in pairs, but for the first and the last, and never go back."""
        first = self.tokens.first_timestamp
        row[self.tokens.no_timestamps] = -np.inf
        one = bool(text) and text[-1] >= first
        two = len(text) < 2 or text[-2] >= first
        if one and two:
            row[first:] = -np.inf
        elif one:
            row[: self.tokens.end] = -np.inf
        latest = next((t for t in reversed(text) if t >= first), None)
        if latest is not None:
            # Segments have a length: only the second of a pair may be the first again.
            row[first : latest if one and not two else latest + 1] = -np.inf

    def _prefer_timestamps(self, row: Logits) -> None:
        """All timestamps together against the likeliest word."""
        first = self.tokens.first_timestamp
        times, word = row[first:], float(row[:first].max())
        largest = float(times.max())
        if largest == -np.inf:
            return
        together = largest + float(np.log(np.exp(times - largest).sum()))
        if together > word:
            row[:first] = -np.inf


def log_softmax(logits: Logits) -> Logits:
    """Along the last axis."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))  # type: ignore[no-any-return]
