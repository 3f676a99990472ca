"""Telling how far a download is."""

from __future__ import annotations

from satchel.progress import Progress, silent

__all__ = ["Progress", "silent"]
