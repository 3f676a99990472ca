"""A text as windows of tokens, and which of their tokens count.

The convention: the tokens of the whole text are cut into windows of ``window`` tokens. What the
tokenizer puts before a text (a beginning-of-text token, for most models that have one) stands at
the beginning of every window and is part of its length. All tokens of a window count but the
first, for which there is nothing to predict it from; so with a beginning-of-text token every
token of the text counts, and without one all but one of each window. With a ``stride`` smaller
than the window, windows begin every ``stride`` tokens, and a token counts only in the first
window that reaches it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from satchel.errors import ConfigError


@dataclass(frozen=True)
class Window:
    """Some tokens in a row; those from ``first`` on count."""

    tokens: tuple[int, ...]
    first: int

    @property
    def counted(self) -> int:
        return len(self.tokens) - self.first


def split_windows(
    tokens: Sequence[int], lead: Sequence[int], window: int, stride: int | None = None
) -> list[Window]:
    """
    >>> [w.tokens for w in split_windows([5, 6, 7, 8], [], window=3)]
    [(5, 6, 7)]
    >>> [(w.tokens, w.first) for w in split_windows([5, 6, 7, 8], [1], window=3)]
    [((1, 5, 6), 1), ((1, 7, 8), 1)]
    >>> [(w.tokens, w.first) for w in split_windows([5, 6, 7, 8], [], window=3, stride=1)]
    [((5, 6, 7), 1), ((6, 7, 8), 2)]
    """
    room = window - len(lead)
    if room < 2:
        raise ConfigError(
            f"a window of {window} tokens is too short", f"Use {len(lead) + 2} or more."
        )
    stride = room if stride is None else stride
    if not 1 <= stride <= window:
        raise ConfigError(
            f"a stride of {stride} leaves tokens of the text out",
            f"Use 1 to {window}, the window's length.",
        )
    stride = min(stride, room)
    windows = []
    reached = 0
    for start in range(0, len(tokens), stride):
        end = min(start + room, len(tokens))
        first = max(len(lead) + reached - start, 1)
        if first < len(lead) + end - start:
            windows.append(Window((*lead, *tokens[start:end]), first))
        reached = end
        if end == len(tokens):
            break
    return windows
