"""What /v1/responses is asked, in the words of /v1/chat/completions."""

from __future__ import annotations

from typing import Any

from satchel.serve.fields import Fields

_SAME = (
    "model", "temperature", "top_p", "top_k", "min_p", "seed", "stream", "tools", "tool_choice",
    "parallel_tool_calls", "frequency_penalty", "presence_penalty", "repetition_penalty",
    "chat_template_kwargs",
)  # fmt: skip


def as_chat(fields: Fields) -> Fields:
    """The same request as one for a chat completion."""
    if fields.get("previous_response_id"):
        raise fields.wrong("previous_response_id", "is not known: nothing is kept; send all input")
    if fields.switch("background"):
        raise fields.wrong("background", "is not supported")
    document = {name: fields.get(name) for name in _SAME if fields.get(name) is not None}
    messages: list[dict[str, Any]] = []
    if instructions := fields.text("instructions"):
        messages.append({"role": "system", "content": instructions})
    document["messages"] = messages + _messages(fields)
    document["max_completion_tokens"] = fields.integer("max_output_tokens", 1, 1 << 31)
    if (text := fields.part("text")) and (form := text.part("format")):
        document["response_format"] = form.document
    if reasoning := fields.part("reasoning"):
        document["reasoning_effort"] = reasoning.text("effort")
    return Fields(document)


def _messages(fields: Fields) -> list[dict[str, Any]]:
    given = fields.get("input")
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
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
    if not made:
        raise fields.wrong("input", "must be a text or a list of items")
    return made
