"""An answer on a terminal as it comes: words wrapped at the margin, markdown lightly rendered."""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Callable

_RESET, _BOLD, _DIM, _CODE = "\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[36m"
_LIST_MARK = re.compile(r"[-*+]|\d{1,3}[.)]")
_HEADING = re.compile(r"#{1,6}")
_FENCE = "```"


def width_of(text: str) -> int:
    """How many columns a text takes.

    >>> width_of("naïve"), width_of("你好")
    (5, 4)
    """
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


def wrapped(text: str) -> str:
    """A remark in lines that fit the terminal that standard error is, if it is one."""
    if not sys.stderr.isatty():
        return text
    return textwrap.fill(text, shutil.get_terminal_size().columns - 1, subsequent_indent="  ")


def wants_style() -> bool:
    """Whether bold and colours are welcome (https://no-color.org)."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


class TerminalText:
    """Takes pieces of any length; a word is written when it is whole.

    >>> written = []
    >>> text = TerminalText(written.append, columns=12, style=False)
    >>> text.push("one two thr"); text.push("ee four")
    >>> text.finish(); "".join(written)
    'one two\\nthree four\\n'
    """

    def __init__(self, write: Callable[[str], object], columns: int, style: bool) -> None:
        self._write = write
        self._columns = max(20 if style else 1, columns)
        self._style = style
        self._word = ""
        self._spaces = ""  # between what is written and the word
        self._column = 0
        self._indent = 0  # of the lines that a list's entry goes on with
        self._at_start = True  # nothing but spaces in this line yet
        self._fenced = False
        self._heading = self._bold = self._code = False

    def push(self, piece: str) -> None:
        for char in piece:
            if char == "\n":
                self._end_line()
            elif self._fenced:
                self._word += char
            elif char in " \t":
                self._flush()
                self._spaces += " " if char == " " else "    "
            elif unicodedata.east_asian_width(char) in "WF":
                self._flush()  # such scripts may break between any two characters
                self._word = char
                self._flush()
            elif char.isprintable() or unicodedata.combining(char):
                self._word += char

    def finish(self) -> None:
        """Write what is left, and end the line."""
        if self._column or self._word:
            self._end_line()

    def _end_line(self) -> None:
        if self._fenced and not self._word.lstrip().startswith(_FENCE):
            self._emit(self._word, _CODE)
            self._word = ""
        self._flush()
        self._emit("\n")
        self._spaces, self._column, self._indent, self._at_start = "", 0, 0, True
        self._heading = self._bold = self._code = False

    def _flush(self) -> None:
        word, self._word = self._word, ""
        if not word:
            return
        first, self._at_start = self._at_start, False
        if first and word.startswith(_FENCE):
            self._fenced = not self._fenced
            self._put(word, word, _DIM)
        elif first and _HEADING.fullmatch(word) and self._style:
            self._heading = True
        elif first and _LIST_MARK.fullmatch(word):
            mark = "•" if self._style and word in ("-", "*", "+") else word
            self._put(mark, mark)
            self._indent = self._column + 1
        else:
            shown = re.sub(r"\*\*|`", "", word) if self._style else word
            self._put(word, shown)

    def _put(self, word: str, shown: str, how: str = "") -> None:
        """A word with what stands before it, in the next line if this one has no room."""
        width = width_of(shown)
        if self._heading and not self._column:
            self._spaces = ""  # its mark was left out
        if self._column and self._column + len(self._spaces) + width > self._columns - 1:
            self._emit("\n" + " " * self._indent)
            self._column = self._indent
        else:
            self._emit(self._spaces)
            self._column += len(self._spaces)
        self._spaces = ""
        self._column = (self._column + width) % max(1, self._columns)
        if how or not self._style:
            self._emit(word, how)
            return
        for part in re.split(r"(\*\*|`)", word):
            if part == "`":
                self._code = not self._code
            elif part == "**" and not self._code:
                self._bold = not self._bold
            else:
                bold = _BOLD if self._bold or self._heading else ""
                self._emit(part, bold + (_CODE if self._code else ""))

    def _emit(self, text: str, how: str = "") -> None:
        if text:
            self._write(f"{how}{text}{_RESET}" if how and self._style else text)
