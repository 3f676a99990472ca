"""Telling how far a download is."""

from __future__ import annotations

from collections.abc import Callable

# (label, bytes done, bytes in all or None)
Progress = Callable[[str, int, int | None], None]


def silent(label: str, done: int, total: int | None) -> None:
    """Tell nobody."""
