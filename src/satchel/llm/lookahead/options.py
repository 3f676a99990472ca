"""What can be chosen about guessing ahead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from satchel.errors import ConfigError

MODES = ("auto", "on", "off")

# A step computes at most this many tokens. Kernels may sum blocks of 64 rows and more in another
# order than single rows (kLongBlock), a token of 16-bit activations is two rows, and then the text
# would no longer be exactly the greedy one.
MAX_ROWS = 31


@dataclass(frozen=True)
class LookaheadSizes:
    """How much is guessed in a step, in the words of lookahead decoding (Fu et al., 2024).

    ``ngram``: a guess has up to ngram - 1 tokens; ``window``: how many positions ahead are worked
    on side by side, 0 for guesses from the text so far only; ``gcap``: the most guesses verified
    at once.

    >>> LookaheadSizes(ngram=4, window=4, gcap=4).rows
    25
    """

    ngram: int = 4
    window: int = 4
    gcap: int = 4

    def __post_init__(self) -> None:
        for name, least in (("ngram", 2), ("window", 0), ("gcap", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ConfigError(f"{name} must be {least} or more, not {value!r}")
        if self.rows > MAX_ROWS:
            raise ConfigError(
                f"ngram {self.ngram}, window {self.window} and gcap {self.gcap} make steps of "
                f"{self.rows} tokens",
                f"1 + (ngram - 1) * (window + gcap) may be at most {MAX_ROWS}.",
            )

    @property
    def rows(self) -> int:
        """Tokens of one step at most: the last one of the text, the window, and the guesses."""
        return 1 + (self.ngram - 1) * (self.window + self.gcap)

    @staticmethod
    def from_metadata(stored: object) -> LookaheadSizes | None:
        """What an export with ``--mode lookahead`` left in the program; None if there is none."""
        if not isinstance(stored, Mapping):
            return None
        names = {f.name for f in fields(LookaheadSizes)}
        return LookaheadSizes(**{str(k): v for k, v in stored.items() if k in names})

    def to_dict(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}


def check_mode(mode: str) -> str:
    if mode not in MODES:
        raise ConfigError(f"there is no lookahead {mode!r}", f"Choose {', '.join(MODES)}.")
    return mode
