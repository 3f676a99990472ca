"""What the commands print: progress and remarks on standard error, results on standard output."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable
from typing import Any

from satchel.units import megabytes

_REDRAW_S = 0.1
_LINE_STEP = 0.25


def say(text: str) -> None:
    """A remark for the person at the terminal; never part of the result."""
    print(text, file=sys.stderr, flush=True)


def print_json(document: dict[str, Any]) -> None:
    print(json.dumps(document, ensure_ascii=False), flush=True)


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


class ProgressBar:
    """A bar on a terminal, and a few plain lines where output goes to a file or a pipe.

    ``amount`` says how much a number is, by default of bytes.
    """

    def __init__(self, amount: Callable[[float], str] = megabytes) -> None:
        self._amount = amount
        self._label = ""
        self._drawn = 0.0
        self._told = 0.0
        self._open = False
        self._terminal = sys.stderr.isatty()

    def __call__(self, label: str, done: int, total: int | None) -> None:
        if label != self._label:
            self.close()
            self._label, self._told, self._drawn = label, 0.0, 0.0
            if not self._terminal:
                say(f"{label} …" if total is None else f"{label}: {self._amount(total)} …")
        finished = total is not None and done >= total
        if self._terminal:
            now = time.monotonic()
            if finished or now - self._drawn >= _REDRAW_S:
                self._drawn = now
                self._draw(done, total)
        elif total and self._told < 1 and (finished or done / total >= self._told + _LINE_STEP):
            self._told = min(1.0, done / total)
            say(f"{label}: {self._told:.0%}")
        if finished:
            self.close()

    def _draw(self, done: int, total: int | None) -> None:
        columns = shutil.get_terminal_size().columns
        if total:
            tail = f" {done / total:4.0%} {self._amount(done)}"
            width = max(8, min(40, columns - len(self._label) - len(tail) - 4))
            filled = int(width * min(1.0, done / total))
            text = f"{self._label} [{'█' * filled}{'░' * (width - filled)}]{tail}"
        else:
            text = f"{self._label} {self._amount(done)}"
        sys.stderr.write(f"\r\x1b[K{text[: columns - 1]}")
        sys.stderr.flush()
        self._open = True

    def close(self) -> None:
        if self._open:
            sys.stderr.write("\n")
            sys.stderr.flush()
        self._open = False


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
