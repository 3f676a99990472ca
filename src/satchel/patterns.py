"""Regular expressions that come with a file, matched in time in proportion to the text.

Python's own matcher tries one way after another, and some expressions have endlessly many. Here all
ways are followed at the same time, a letter at a time. What that cannot do (looking around, going
back to what was matched) is refused.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

if sys.version_info >= (3, 11):
    from re import _constants as _names
    from re import _parser
else:
    import sre_constants as _names
    import sre_parse as _parser

_MOST_STATES = 10_000

_CATEGORIES: dict[Any, Callable[[str], bool]] = {
    _names.CATEGORY_DIGIT: str.isdecimal,
    _names.CATEGORY_NOT_DIGIT: lambda c: not c.isdecimal(),
    _names.CATEGORY_SPACE: str.isspace,
    _names.CATEGORY_NOT_SPACE: lambda c: not c.isspace(),
    _names.CATEGORY_WORD: lambda c: c.isalnum() or c == "_",
    _names.CATEGORY_NOT_WORD: lambda c: not (c.isalnum() or c == "_"),
}
_REPEATS = (_names.MAX_REPEAT, _names.MIN_REPEAT)
_STARTS = (_names.AT_BEGINNING, _names.AT_BEGINNING_STRING)
_ENDS = (_names.AT_END, _names.AT_END_STRING)


class Pattern:
    """A regular expression; ValueError if it is none, or not one of the kind that is supported.

    >>> Pattern(r"layers\\.[0-9]+\\.(q|v)_proj").matches("layers.12.v_proj")
    True
    >>> Pattern("(a+)+b").matches("a" * 100_000)
    False
    """

    def __init__(self, source: str) -> None:
        try:
            parsed: Any = _parser.parse(source)
        except (_parser.error, RecursionError, OverflowError) as error:
            raise ValueError(f"{source[:80]!r} is not a regular expression: {error}") from None
        if parsed.state.flags & ~_names.SRE_FLAG_UNICODE:
            raise ValueError(f"{source[:80]!r} sets flags, which is not supported")
        # A state is a test of a letter (or of a place, or nothing) and the states behind it.
        self._tests: list[tuple[Any, Any]] = []
        self._next: list[list[int]] = []
        try:
            self._first = self._build(list(parsed), self._state(None, None, []))
        except RecursionError:
            raise ValueError("a regular expression is nested too deep") from None

    def matches(self, text: str) -> bool:
        """Whether the whole text is what the expression describes."""
        states = self._reached([self._first], text, 0)
        for at, letter in enumerate(text):
            behind = [n for s in states if self._takes(s, letter) for n in self._next[s]]
            states = self._reached(behind, text, at + 1)
            if not states:
                return False
        return 0 in states

    def _state(self, kind: Any, value: Any, behind: list[int]) -> int:
        if len(self._tests) >= _MOST_STATES:
            raise ValueError("a regular expression is too long")
        self._tests.append((kind, value))
        self._next.append(behind)
        return len(self._tests) - 1

    def _build(self, items: Iterable[Any], behind: int) -> int:
        """The state from which these items lead to the one behind them."""
        for kind, value in reversed(list(items)):
            if kind in _REPEATS:
                least, most, inner = value
                behind = self._repeated(least, most, list(inner), behind)
            elif kind is _names.SUBPATTERN:
                if value[1] or value[2]:
                    raise ValueError("a regular expression sets flags, which is not supported")
                behind = self._build(value[-1], behind)
            elif kind is _names.BRANCH:
                behind = self._state(None, None, [self._build(one, behind) for one in value[1]])
            elif kind in (_names.LITERAL, _names.NOT_LITERAL, _names.ANY, _names.IN, _names.AT):
                behind = self._state(kind, value, [behind])
            else:
                raise ValueError(f"{str(kind).lower()} in a regular expression is not supported")
        return behind

    def _repeated(self, least: int, most: Any, items: list[Any], behind: int) -> int:
        if most is _names.MAXREPEAT:
            loop = self._state(None, None, [behind])
            self._next[loop].append(self._build(items, loop))
            behind = loop
        else:
            end = behind
            for _ in range(most - least):
                behind = self._state(None, None, [self._build(items, behind), end])
        for _ in range(least):
            before = len(self._tests)
            behind = self._build(items, behind)
            if len(self._tests) == before:  # of nothing, so that it is the same any number of times
                break
        return behind

    def _reached(self, states: Iterable[int], text: str, at: int) -> set[int]:
        """These and all behind them that take no letter to get to."""
        seen: set[int] = set()
        waiting = list(states)
        while waiting:
            state = waiting.pop()
            if state in seen:
                continue
            seen.add(state)
            kind, value = self._tests[state]
            if kind is None or (kind is _names.AT and _stands(value, text, at)):
                waiting += self._next[state]
        return seen

    def _takes(self, state: int, letter: str) -> bool:
        kind, value = self._tests[state]
        if kind is _names.LITERAL:
            return bool(ord(letter) == value)
        if kind is _names.NOT_LITERAL:
            return bool(ord(letter) != value)
        if kind is _names.ANY:
            return letter != "\n"
        return kind is _names.IN and _is_in(value, letter)


def _is_in(items: list[tuple[Any, Any]], letter: str) -> bool:
    negated = items[0][0] is _names.NEGATE
    return any(_members(items[negated:], letter)) != negated


def _members(items: list[tuple[Any, Any]], letter: str) -> Iterator[bool]:
    for kind, value in items:
        if kind is _names.LITERAL:
            yield ord(letter) == value
        elif kind is _names.RANGE:
            yield value[0] <= ord(letter) <= value[1]
        else:
            yield _CATEGORIES[value](letter)


def _stands(place: Any, text: str, at: int) -> bool:
    if place in _STARTS:
        return at == 0
    if place in _ENDS:
        return at == len(text)
    raise ValueError("a regular expression looks for the edge of a word, which is not supported")
