"""What the commands print: progress and remarks on standard error, results on standard output."""

from __future__ import annotations

import json
import re
import sys
from contextlib import suppress
from typing import Any

# Control characters but for tab and new line, marks that turn the direction of a text, and halves
# of characters: names and texts come from files, and could steer the terminal or hide something.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def shown(text: str) -> str:
    """A text that a terminal can show; what it could be steered with is spelled out.

    >>> shown("a\x1b[31mb")
    'a\\\\x1b[31mb'
    """
    return _HIDDEN.sub(lambda hidden: hidden[0].encode("unicode_escape").decode(), text)


def emit(text: object = "", end: str = "\n") -> None:
    """A part of the result. All that commands print goes through here or through :func:`say`."""
    print(shown(str(text)), end=end, flush=True)


def emit_answer(piece: str) -> None:
    """A piece of what a model says: as it is to a pipe or a file, filtered on a terminal."""
    on_terminal = sys.stdout is not None and sys.stdout.isatty()
    print(shown(piece) if on_terminal else piece, end="", flush=True)


class Aside(str):
    """A remark that is not to catch the eye."""


def say(text: str) -> None:
    """A remark for the person at the terminal; never part of the result.

    If nobody can read it any more, the work goes on without it.
    """
    line = shown(text)
    if isinstance(text, Aside) and _on_terminal():
        line = f"\x1b[2m{line}\x1b[0m"
    with suppress(OSError, ValueError):
        print(line, file=sys.stderr, flush=True)


def _on_terminal() -> bool:
    return sys.stderr is not None and not sys.stderr.closed and sys.stderr.isatty()


def print_json(document: dict[str, Any]) -> None:
    text = json.dumps(document, ensure_ascii=False)
    print(_HIDDEN.sub(lambda hidden: f"\\u{ord(hidden[0]):04x}", text), flush=True)


def whole(number: float) -> str:
    """
    >>> whole(4096)
    '4,096'
    """
    return f"{int(number):,}"


def count(number: float) -> str:
    """
    >>> count(134_515_008)
    '135M'
    """
    for limit, unit in ((1e9, "B"), (1e6, "M"), (1e3, "K")):
        value = number / limit
        if value >= 0.9995:
            return f"{value:.2f}{unit}" if value < 9.995 else f"{value:.0f}{unit}"
    return str(int(number))


def table(rows: list[list[str]], header: list[str]) -> str:
    """Columns as wide as their widest cell; numbers to the right."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]

    def line(row: list[str]) -> str:
        cells = [
            cell.rjust(width) if cell[:1].isdigit() else cell.ljust(width)
            for cell, width in zip(row, widths, strict=True)
        ]
        return "  ".join(cells).rstrip()

    return "\n".join([line(header), line(["-" * w for w in widths]), *map(line, rows)])
