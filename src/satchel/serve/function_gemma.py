"""Calls as FunctionGemma writes them: ``call:NAME{key:<escape>text<escape>,count:2}``."""

from __future__ import annotations

import json
import re
from typing import Any

BEGIN, END = "<start_function_call>", "<end_function_call>"
_ESCAPE = "<escape>"
_HEAD = re.compile(r"\s*call:\s*([^\s{]+)\s*(?=\{)")
_PLAIN = re.compile(r"[^,\[\]{}]+")
_KEY = re.compile(r"\s*([^:,\[\]{}]+?)\s*:")
_DEEPEST = 64
_WORDS = {"none": None, "null": None, "true": True, "false": False}


def parse_call(text: str) -> tuple[str, dict[str, Any]] | None:
    """Name and arguments of a call, or None if it is none.

    >>> parse_call("call:add{a:1,b:<escape>x, y<escape>,c:[true,{d:2.5}]}")
    ('add', {'a': 1, 'b': 'x, y', 'c': [True, {'d': 2.5}]})
    """
    head = _HEAD.match(text)
    if head is None:
        return None
    try:
        value, at = _value(text, head.end(), 0)
    except ValueError:
        return None
    if not isinstance(value, dict) or text[at:].strip():
        return None
    return head[1], value


def _value(text: str, at: int, depth: int) -> tuple[Any, int]:
    """What stands there, and where it ends; ValueError if nothing does."""
    if depth > _DEEPEST:
        raise ValueError("nested too deep")
    at = _skip(text, at)
    if text.startswith(_ESCAPE, at):
        begin = at + len(_ESCAPE)
        end = text.index(_ESCAPE, begin)
        return text[begin:end], end + len(_ESCAPE)
    if text.startswith("{", at):
        return _items(text, at, "}", depth)
    if text.startswith("[", at):
        return _items(text, at, "]", depth)
    plain = _PLAIN.match(text, at)
    if plain is None:
        raise ValueError("there is no value")
    return _word(plain[0].strip()), plain.end()


def _items(text: str, at: int, end: str, depth: int) -> tuple[Any, int]:
    made: dict[str, Any] | list[Any] = {} if end == "}" else []
    at = _skip(text, at + 1)
    while not text.startswith(end, at):
        if isinstance(made, dict):
            key = _KEY.match(text, at)
            if key is None:
                raise ValueError("there is no key")
            name = key[1].removeprefix(_ESCAPE).removesuffix(_ESCAPE)
            made[name], at = _value(text, key.end(), depth + 1)
        else:
            value, at = _value(text, at, depth + 1)
            made.append(value)
        at = _skip(text, at)
        if text.startswith(",", at):
            at = _skip(text, at + 1)
        elif not text.startswith(end, at):
            raise ValueError("a comma is missing")
    return made, at + 1


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _word(text: str) -> Any:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, int | float | str) else text
