"""How a server lists its models of every kind."""

from __future__ import annotations

from typing import Any

from satchel.program.about import About


def listed(
    name: str,
    created: int,
    about: About,
    bytes: int,
    max_model_len: int | None,
    root: str | None = None,
    parent: str | None = None,
    **more: object,
) -> dict[str, Any]:
    """A model as OpenAI lists it, with what people want to know besides; ``more`` is its kind's."""
    return {
        "id": name,
        "object": "model",
        "created": created,
        "owned_by": "satchel",
        "root": root or name,
        "parent": parent,
        "max_model_len": max_model_len,
        "meta": {
            "name": about.name,
            "recipe": about.recipe_description,
            **more,
            "bytes": bytes,
        },
    }
