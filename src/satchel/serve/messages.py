"""The messages of a request, as chat templates expect them."""

from __future__ import annotations

import json
from typing import Any

from satchel.serve.fields import Fields
from satchel.serve.images import IMAGE_PARTS, ImageReader

_ROLES = ("system", "developer", "user", "assistant", "tool", "function")


def read_messages(fields: Fields, images: ImageReader | None = None) -> list[dict[str, Any]]:
    """Checked, with contents as plain texts and the arguments of calls as objects.

    A message that shows images has a list of texts and places for these, which go to ``images``.
    """
    messages = [_message(each, images) for each in fields.parts("messages")]
    if not messages:
        raise fields.wrong("messages", "must have at least one message")
    return messages


def content_length(message: dict[str, Any]) -> int:
    """The characters of a message."""
    content = message["content"] or ""
    parts = [content] if isinstance(content, str) else [part.get("text", "") for part in content]
    return sum(map(len, parts))


def _message(fields: Fields, images: ImageReader | None) -> dict[str, Any]:
    role = fields.choice("role", _ROLES, "")
    message: dict[str, Any] = {"role": "system" if role == "developer" else role}
    message["content"] = _content(fields, images)
    if role != "user" and isinstance(message["content"], list):
        raise fields.wrong("content", f"shows an image: users do, and not the {role}")
    for optional in ("name", "tool_call_id", "reasoning_content"):
        value = fields.text(optional)
        if value is not None:
            message[optional] = value
    if calls := fields.parts("tool_calls"):
        message["tool_calls"] = [_call(call) for call in calls]
    elif message["content"] is None:
        if role != "assistant":
            raise fields.wrong("content", "is missing")
        message["content"] = ""
    return message


def _content(fields: Fields, images: ImageReader | None) -> Any:
    """A text, or a list of texts and images; texts alone are one."""
    content = fields.get("content")
    if content is None or isinstance(content, str):
        return content
    parts, texts = [], []
    for part in fields.parts("content"):
        kind = part.text("type") or ""
        if kind in IMAGE_PARTS:
            if images is None:
                raise part.wrong("type", f"is {kind!r}: this model takes text only")
            images.take(part)
            parts.append({"type": "image"})
            continue
        if kind not in ("text", "input_text", "output_text", "refusal"):
            raise part.wrong("type", f"is {kind!r}: this model takes text only")
        text = part.text("refusal" if kind == "refusal" else "text")
        if text is None:
            raise part.wrong("text", "is missing")
        texts.append(text)
        parts.append({"type": "text", "text": text})
    return parts if len(parts) > len(texts) else "\n".join(texts)


def _call(fields: Fields) -> dict[str, Any]:
    function = fields.part("function")
    name = function.text("name") if function else None
    if function is None or not name:
        raise fields.wrong("function", "must have a name")
    arguments = function.get("arguments")
    if isinstance(arguments, str):  # templates write objects as each family does
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            raise function.wrong("arguments", "is not JSON") from None
    if not isinstance(arguments, dict):
        raise function.wrong("arguments", "must be a JSON object")
    return {
        "id": fields.text("id") or "",
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }
