"""The tools of a request: for the template, for the model that has none, and as a form to hold."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from satchel.serve.fields import Fields
from satchel.serve.models import ServedModel

_CHOICES = ("none", "auto", "required")
_MOST_TOOLS = 128
_INSTRUCTION = (
    "You may call these functions, each given as JSON:\n{tools}\n\n"
    "To call one, answer with nothing but\n"
    '<tool_call>\n{{"name": "its name", "arguments": {{…}}}}\n</tool_call>'
)


@dataclass(frozen=True)
class Tools:
    """What may be called, and whether it must be."""

    given: Sequence[dict[str, Any]] = ()
    must: Sequence[str] = ()  # one of these is called; empty leaves it to the model
    most: int = 64  # calls in an answer
    names: Sequence[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", [tool["function"]["name"] for tool in self.given])

    def schema(self) -> dict[str, Any] | None:
        """The form of an answer that must be a call."""
        calls = [
            {
                "type": "object",
                "properties": {
                    "name": {"const": tool["function"]["name"]},
                    "arguments": _closed(tool["function"]["parameters"]),
                },
                "required": ["name", "arguments"],
                "additionalProperties": False,
            }
            for tool in self.given
            if tool["function"]["name"] in self.must
        ]
        return {"anyOf": calls} if calls else None


def _closed(parameters: dict[str, Any]) -> dict[str, Any]:
    """No other arguments than those that are listed, unless the schema says that there may be."""
    if "properties" not in parameters:
        return parameters
    return {"additionalProperties": False, **parameters}


def read_tools(fields: Fields) -> Tools:
    """``tools``, ``tool_choice`` and ``parallel_tool_calls``."""
    given = [_tool(each) for each in fields.parts("tools")]
    if len(given) > _MOST_TOOLS:
        raise fields.wrong("tools", f"may have {_MOST_TOOLS} tools, not {len(given)}")
    names = [tool["function"]["name"] for tool in given]
    most = 64 if fields.switch("parallel_tool_calls", True) else 1
    choice = fields.get("tool_choice")
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        return _allowed(fields, given, most)
    if isinstance(choice, dict):
        part = fields.part("tool_choice")
        function = part.part("function") if part else None
        name = (function or part or fields).text("name")
        if name is None or name not in names:
            raise fields.wrong("tool_choice", f"names {name!r}, which is not among the tools")
        return Tools(given, [name], 1)
    chosen = fields.choice("tool_choice", _CHOICES, "auto")
    if chosen == "none":
        return Tools()
    if chosen == "required" and not given:
        raise fields.wrong("tool_choice", "is required, and there are no tools")
    return Tools(given, names if chosen == "required" else (), most)


def _allowed(fields: Fields, given: list[dict[str, Any]], most: int) -> Tools:
    """Some of the tools may be called, or one of them must be."""
    part = fields.part("tool_choice")
    inner = part and (part.part("allowed_tools") or part)
    assert inner is not None
    mode = inner.choice("mode", ("auto", "required"), "auto")
    allowed = [(each.part("function") or each).text("name") for each in inner.parts("tools")]
    chosen = [tool for tool in given if tool["function"]["name"] in allowed]
    if len(chosen) < len(set(allowed)) or not chosen:
        raise fields.wrong("tool_choice", "allows a tool that is not among the tools")
    names = [tool["function"]["name"] for tool in chosen]
    return Tools(chosen, names if mode == "required" else (), most)


def _tool(fields: Fields) -> dict[str, Any]:
    if fields.text("type", "function") != "function":
        raise fields.wrong("type", "must be function")
    # The responses API has the function's fields beside its type.
    function = fields.part("function") or fields
    name = function.text("name")
    if not name:
        raise function.wrong("name", "is missing")
    parameters = function.part("parameters")
    made: dict[str, Any] = {"name": name, "description": function.text("description") or ""}
    made["parameters"] = dict(parameters.document) if parameters else {"type": "object"}
    return {"type": "function", "function": made}


def with_tools(
    model: ServedModel, messages: Sequence[dict[str, Any]], tools: Tools
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The messages, and what the template is given besides.

    Templates that know tools write them as their family does; for others a system message says
    what can be called, and earlier calls and their results become plain messages.
    """
    template = model.llm.tokenizer.spec.chat_template or ""
    if "tools" in template:
        return list(messages), {"tools": list(tools.given)} if tools.given else {}
    plain = [_plain(message) for message in messages]
    if tools.given:
        listed = "\n".join(json.dumps(tool["function"]) for tool in tools.given)
        told = _INSTRUCTION.format(tools=listed)
        if plain[0]["role"] == "system":
            plain[0] = {**plain[0], "content": f"{plain[0]['content']}\n\n{told}"}
        else:
            plain.insert(0, {"role": "system", "content": told})
    return plain, {}


def _plain(message: dict[str, Any]) -> dict[str, Any]:
    if message["role"] in ("tool", "function"):
        told = f"<tool_response>\n{message['content']}\n</tool_response>"
        return {"role": "user", "content": told}
    content = message["content"] or ""
    for call in message.get("tool_calls", ()):
        made = json.dumps(call["function"])
        content += f"{chr(10) if content else ''}<tool_call>\n{made}\n</tool_call>"
    return {"role": message["role"], "content": content}
