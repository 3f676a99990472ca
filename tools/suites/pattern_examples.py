"""A short text that a regular expression finds, for the patterns of JSON Schemas."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any

if sys.version_info >= (3, 11):
    from re import _parser as parser
else:  # its name before
    import sre_parse as parser

# Of formats, and of what patterns are often about.
USUAL = ("a@b.co", "http://a.b/c", "2000-01-01", "2000-01-01T00:00:00Z", "0.0.0", "0", "a.b", "")
_LETTERS = "a0A_-. /:@"
_CATEGORIES = {"category_digit": "0", "category_word": "a", "category_space": " "}
_OTHERS = {"category_not_digit": "a", "category_not_word": "-", "category_not_space": "a"}


def example(pattern: str) -> str | None:
    """
    >>> example("^[A-F0-9]{3}$"), example(r"request|x"), example(r"[^@]+@\\d+[.]\\w")
    ('AAA', 'request', 'a@0.a')
    """
    try:
        text = _text(parser.parse(pattern))
        return text if re.search(pattern, text) else None
    except (re.error, NotImplementedError, RecursionError, OverflowError):
        return None


def _text(nodes: Any) -> str:
    return "".join(_one(str(kind).lower(), what) for kind, what in nodes)


def _one(kind: str, what: Any) -> str:
    if kind == "literal":
        return chr(what)
    if kind == "any":
        return "a"
    if kind == "not_literal":
        return next(letter for letter in _LETTERS if ord(letter) != what)
    if kind == "in":
        return _member(what)
    if kind in ("max_repeat", "min_repeat", "possessive_repeat"):
        least, _, inner = what
        return _text(inner) * min(least, 500)
    if kind == "subpattern":
        return _text(what[-1])
    if kind == "branch":
        return _text(what[1][0])
    if kind in ("at", "assert_not"):
        return ""
    raise NotImplementedError(kind)


def _member(items: Any) -> str:
    first = str(items[0][0]).lower()
    if first == "negate":
        inside = "".join(f"{_class(str(k).lower(), v)}" for k, v in items[1:])
        return next(letter for letter in _LETTERS if not re.match(f"[{inside}]", letter))
    kind, what = first, items[0][1]
    if kind == "literal":
        return chr(what)
    if kind == "range":
        return chr(what[0])
    return {**_CATEGORIES, **_OTHERS}[str(what).lower()]


def _class(kind: str, what: Any) -> str:
    if kind == "literal":
        return re.escape(chr(what))
    if kind == "range":
        return f"{re.escape(chr(what[0]))}-{re.escape(chr(what[1]))}"
    shorts = {"digit": "d", "word": "w", "space": "s"}
    name = str(what).lower().removeprefix("category_")
    short = shorts[name.removeprefix("not_")]
    return "\\" + (short.upper() if name.startswith("not_") else short)


def patterns(schema: Any) -> Iterator[str]:
    """All patterns of a schema, those of properties' names too."""
    if isinstance(schema, list):
        for each in schema:
            yield from patterns(each)
    elif isinstance(schema, dict):
        if isinstance(schema.get("pattern"), str):
            yield schema["pattern"]
        if isinstance(schema.get("patternProperties"), dict):
            yield from schema["patternProperties"]
        for each in schema.values():
            yield from patterns(each)


def examples(schema: Any) -> list[str]:
    """Texts that the strings of a schema may be, the likeliest first."""
    found = (example(pattern) for pattern in patterns(schema))
    return list(dict.fromkeys([*(text for text in found if text is not None), *USUAL]))
