"""What /v1/responses is asked, in the words of /v1/chat/completions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from satchel.serve.fields import Fields

_SAME = (
    "model", "temperature", "top_p", "top_k", "min_p", "seed", "stream", "tools", "tool_choice",
    "parallel_tool_calls", "frequency_penalty", "presence_penalty", "repetition_penalty",
    "chat_template_kwargs",
)  # fmt: skip


def input_items(fields: Fields) -> list[dict[str, Any]]:
    """What is asked, as items."""
    given = fields.get("input")
    if isinstance(given, str):
        return [{"type": "message", "role": "user", "content": given}]
    items = [dict(part.document) for part in fields.parts("input")]
    if not items:
        raise fields.wrong("input", "must be a text or a list of items")
    return items


def as_chat(fields: Fields, items: Sequence[dict[str, Any]]) -> Fields:
    """The same request as one for a chat completion; ``items`` are all of the conversation."""
    if fields.switch("background"):
        raise fields.wrong("background", "is not supported")
    document = {name: fields.get(name) for name in _SAME if fields.get(name) is not None}
    messages: list[dict[str, Any]] = []
    if instructions := fields.text("instructions"):
        messages.append({"role": "system", "content": instructions})
    document["messages"] = messages + _messages(Fields({"input": items}))
    document["max_completion_tokens"] = fields.integer("max_output_tokens", 1, 1 << 31)
    if (text := fields.part("text")) and (form := text.part("format")):
        document["response_format"] = form.document
    if reasoning := fields.part("reasoning"):
        document["reasoning_effort"] = reasoning.text("effort")
    return Fields(document)


def _messages(fields: Fields) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for item in fields.parts("input"):
        kind = item.text("type", "message")
        if kind == "message":
            made.append({"role": item.get("role"), "content": item.get("content")})
        elif kind == "function_call":
            call = {
                "id": item.text("call_id"),
                "function": {"name": item.text("name"), "arguments": item.text("arguments")},
            }
            # Calls that follow each other, or a message, are one turn of the model.
            if not made or made[-1]["role"] != "assistant":
                made.append({"role": "assistant", "content": None})
            made[-1].setdefault("tool_calls", []).append(call)
        elif kind == "function_call_output":
            output = item.get("output")
            made.append({"role": "tool", "tool_call_id": item.text("call_id"), "content": output})
        elif kind != "reasoning":  # which templates drop
            raise item.wrong("type", f"is {kind!r}, which is not supported")
    return made
