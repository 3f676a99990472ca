"""A server with OpenAI's API: ``satchel serve``, or ``App`` in an ASGI server of your own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from satchel.serve.app import App
    from satchel.serve.settings import Settings

__all__ = ["App", "Settings"]


def __getattr__(name: str) -> Any:
    """Loaded when first used: the server's libraries are an extra."""
    if name == "App":
        from satchel.serve.app import App

        return App
    if name == "Settings":
        from satchel.serve.settings import Settings

        return Settings
    raise AttributeError(f"module 'satchel.serve' has no attribute {name!r}")
