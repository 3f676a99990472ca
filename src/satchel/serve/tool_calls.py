"""Finds calls of tools in a model's text, while it comes.

Families write calls as JSON with a name and arguments: Qwen, Hermes and SmolLM3 between <tool_call>
and </tool_call>, Granite and Phi as a list behind <|tool_call|>, Llama 3 as the whole answer, with
``parameters``; FunctionGemma has a form of its own. JSON at the beginning of an answer is a call
without a mark too, if it names one of the tools.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Collection
from typing import Any

from satchel.serve import function_gemma
from satchel.serve.reasoning import possible_beginning

BEGINS = ("<tool_call>", "<|tool_call|>", "<|python_tag|>", function_gemma.BEGIN)
ENDS = ("</tool_call>", "<|/tool_call|>", function_gemma.END)
CALL_MARKS = (*BEGINS, *ENDS)
_HEAD = re.compile(
    r'\{\s*(?:"type"\s*:\s*"function"\s*,\s*)?"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*'
    r'"(?:arguments|parameters)"\s*:\s*(?=\{)'
)
_BETWEEN = " \t\r\n,;[]"
Delta = dict[str, Any]


class JsonObject:
    """Follows the brackets of one JSON object; ``end`` is where it is complete.

    >>> JsonObject().end('{"a": "}"} and more')
    10
    """

    def __init__(self) -> None:
        self._at = self._depth = 0
        self._in_text = self._escaped = False

    def end(self, text: str) -> int | None:
        """The text may grow from call to call; None while the object is not complete."""
        for at in range(self._at, len(text)):
            char = text[at]
            if self._escaped:
                self._escaped = False
            elif self._in_text:
                self._escaped = char == "\\"
                self._in_text = char != '"'
            elif char == '"':
                self._in_text = True
            elif char in "{[":
                self._depth += 1
            elif char in "}]":
                self._depth -= 1
                if self._depth <= 0:
                    self._at = at
                    return at + 1
        self._at = len(text)
        return None


class ToolCalls:
    """Divides content from calls; gives deltas as OpenAI streams them.

    >>> calls = ToolCalls(["add"])
    >>> made = calls.push('<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>')
    >>> made[0]["tool_calls"][0]["function"]["name"], made[1]["tool_calls"][0]["function"]
    ('add', {'arguments': '{"a": 1}'})
    """

    def __init__(self, names: Collection[str], most: int = 64) -> None:
        self._names, self._most = names, most
        self._held = ""
        self._state: Callable[[], list[Delta] | None] = self._at_start
        self._calls = 0
        self._marked = False  # whether a mark said that calls follow
        self._whole: JsonObject | None = None
        self._arguments: JsonObject | None = None
        self._sent = 0

    def push(self, text: str) -> list[Delta]:
        self._held += text
        deltas: list[Delta] = []
        while (made := self._state()) is not None:
            deltas += made
        return deltas

    def finish(self) -> list[Delta]:
        """What was held back: no call came of it."""
        rest, self._held = self._held, ""
        if self._state == self._in_arguments:
            return self._argument_delta(rest[self._sent :])
        if self._state == self._in_gemma_call and (called := function_gemma.parse_call(rest)):
            return [
                *self._begin_call(called[0]),
                *self._argument_delta(json.dumps(called[1], ensure_ascii=False)),
            ]
        if self._calls and not rest.strip(_BETWEEN):
            return []
        return _content(rest)

    # Each state gives deltas and goes on, or None when it needs more text.

    def _at_start(self) -> list[Delta] | None:
        text = self._held.lstrip()
        if not text:
            return None
        # JSON at the very beginning may be a call without a mark.
        self._state = self._between if text[0] in "{[" else self._in_content
        return []

    def _in_content(self) -> list[Delta] | None:
        found = [(self._held.find(mark), mark) for mark in BEGINS if mark in self._held]
        if found:
            at, mark = min(found)
            before, self._held = self._held[:at], self._held[at + len(mark) :]
            gemma = mark == function_gemma.BEGIN
            self._state, self._marked = self._in_gemma_call if gemma else self._between, True
            return _content(before.rstrip())
        keep = max(possible_beginning(self._held, mark) for mark in BEGINS)
        # White space before a call belongs to nothing, so it waits for what follows.
        cut = len(self._held[: len(self._held) - keep].rstrip())
        ready, self._held = self._held[:cut], self._held[cut:]
        return _content(ready) or None

    def _between(self) -> list[Delta] | None:
        """Before a call, or behind one."""
        text = self._held.lstrip(_BETWEEN)
        if not text:
            return None
        for mark in (*BEGINS, *ENDS):
            if text.startswith(mark):
                self._held, self._marked = text[len(mark) :], mark in BEGINS
                if mark == function_gemma.BEGIN:
                    self._state = self._in_gemma_call
                return []
            if mark.startswith(text):
                return None
        if text[0] == "{":
            self._held, self._state = text, self._in_call
            self._whole = JsonObject()
        else:
            self._held = self._held if not self._calls else text
            self._state = self._in_content
        return []

    def _in_call(self) -> list[Delta] | None:
        """A JSON object has begun; is it a call?"""
        assert self._whole is not None
        head = _HEAD.match(self._held)
        if head and self._known(json.loads(head[1])):
            self._held = self._held[head.end() :]
            self._state, self._arguments, self._sent = self._in_arguments, JsonObject(), 0
            return self._begin_call(json.loads(head[1]))
        end = self._whole.end(self._held)
        if end is None:
            return None
        text, self._held = self._held[:end], self._held[end:]
        self._state = self._between
        called = _parse(text)
        if called is not None and self._known(called[0]):
            return [
                *self._begin_call(called[0]),
                *self._argument_delta(json.dumps(called[1], ensure_ascii=False)),
            ]
        self._state = self._in_content
        return _content(text)

    def _in_gemma_call(self) -> list[Delta] | None:
        """Not JSON: it is read when it is whole."""
        text, found, rest = self._held.partition(function_gemma.END)
        if not found:
            return None
        self._held, self._state = rest, self._between
        called = function_gemma.parse_call(text)
        if called is None:
            self._state = self._in_content
            return _content(text)
        return [
            *self._begin_call(called[0]),
            *self._argument_delta(json.dumps(called[1], ensure_ascii=False)),
        ]

    def _in_arguments(self) -> list[Delta] | None:
        assert self._arguments is not None
        end = self._arguments.end(self._held)
        ready = self._held[self._sent : end]
        if end is None:
            self._sent = len(self._held)
            return self._argument_delta(ready) or None
        # Behind the arguments the object of the call ends.
        rest = self._held[end:].lstrip()
        if not rest:
            self._sent = end
            return self._argument_delta(ready) or None
        self._held = rest.removeprefix("}")
        self._state = self._between
        return self._argument_delta(ready)

    def _known(self, name: object) -> bool:
        return isinstance(name, str) and (self._marked or name in self._names)

    def _begin_call(self, name: str) -> list[Delta]:
        self._calls += 1
        if self._calls > self._most:
            return []
        call = {
            "index": self._calls - 1,
            "id": f"call_{uuid.uuid4().hex[:24]}",
            "type": "function",
            "function": {"name": name, "arguments": ""},
        }
        return [{"tool_calls": [call]}]

    def _whole_call(self, name: str, arguments: dict[str, Any]) -> list[Delta]:
        written = json.dumps(arguments, ensure_ascii=False)
        return [*self._begin_call(name), *self._argument_delta(written)]

    def _argument_delta(self, text: str) -> list[Delta]:
        if not text or self._calls > self._most:
            return []
        call = {"index": self._calls - 1, "function": {"arguments": text}}
        return [{"tool_calls": [call]}]


def _content(text: str) -> list[Delta]:
    return [{"content": text}] if text else []


def _parse(text: str) -> tuple[str, dict[str, Any]] | None:
    """Name and arguments of a call, whatever the order and the names of its fields."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if isinstance(document.get("function"), dict):
        document = document["function"]
    name = document.get("name")
    arguments = document.get("arguments", document.get("parameters", {}))
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return None
    if not isinstance(name, str) or not isinstance(arguments, dict):
        return None
    return name, arguments
