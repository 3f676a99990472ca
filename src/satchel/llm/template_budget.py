"""What a template may use up: turns of loops, text, time. It is foreign code, and may be hostile.

A budget is spent while a template is compiled and while it is rendered. Large conversations get
more of it, in proportion, so that it only ever stops templates that make something out of nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from jinja2.exceptions import SecurityError

# No prompt is this long; a template that builds such a text or number is broken or hostile.
_LARGEST_VALUE = 1 << 20
_MOST_TEXT = 1 << 24
_MOST_STEPS = 1 << 20
_MOST_SECONDS = 10.0
_LARGEST_NUMBER = 1 << 16  # bits
# What a place in a list or dictionary takes, beside what is in it, where a letter is one.
_ITEM, _PAIR = 8, 32


class TemplateBudget:
    """What is left for one compilation or rendering.

    A value is weighed as it would be written out: one list in many places counts once for each, as
    comparing and printing it would take as long.
    """

    def __init__(self, given: Any = ()) -> None:
        self.largest, self._steps = 1 << 62, 1 << 62
        self._deadline = time.monotonic() + _MOST_SECONDS
        size = self.weigh(given)
        things = (1 << 62) - self._steps
        self.largest = _LARGEST_VALUE + 4 * size
        self._text = _MOST_TEXT + 64 * size
        self._steps = _MOST_STEPS + 1024 * things

    def step(self, count: int = 1) -> None:
        """For each turn of a loop, call, and filter."""
        self._steps -= count
        if self._steps < 0:
            raise SecurityError("the template takes too many steps for a prompt")
        if time.monotonic() > self._deadline:
            raise SecurityError(f"the template takes longer than {_MOST_SECONDS:.0f} seconds")

    def allow(self, size: int) -> None:
        """Before something of this size is made."""
        if size > self.largest:
            raise SecurityError(f"a value of size {size} is too large for a prompt")

    def write(self, size: int) -> None:
        """For each text and list that is made."""
        self._text -= size
        if self._text < 0:
            raise SecurityError("the template makes too much text for a prompt")

    def keep(self, value: Any) -> Any:
        """A value that was made just now, as a list where it would be made while it is read."""
        if isinstance(value, str):
            self.allow(len(value))
            self.write(len(value))
        elif isinstance(value, int):
            if value.bit_length() > _LARGEST_NUMBER:
                raise SecurityError("a number is too large for a prompt")
        elif isinstance(value, Iterator):
            return self.keep(self.collect(value))
        elif isinstance(value, list | tuple | Mapping):
            self.write(_ITEM * len(value))
            self.weigh(value)
        return value

    def collect(self, items: Iterator[Any]) -> list[Any]:
        collected = []
        for item in items:
            self.step()
            self.write(_ITEM)
            collected.append(item.copy() if type(item) is list else item)
        return collected

    def weigh(self, value: Any) -> int:
        """The size of a value that is not too large."""
        size, waiting, seen = 0, [value], 0
        while waiting:
            item = waiting.pop()
            seen += 1
            if isinstance(item, str):
                size += len(item)
            elif isinstance(item, int):
                size += item.bit_length() // 4
            elif isinstance(item, Mapping):
                size += _PAIR * len(item)
                waiting += item.keys()
                waiting += item.values()
            elif isinstance(item, list | tuple | range):
                size += _ITEM * len(item)
                if not isinstance(item, range):
                    waiting += item
            self.allow(size)
        self.step(seen)
        return size


_current: ContextVar[TemplateBudget | None] = ContextVar("template_budget", default=None)


def budget() -> TemplateBudget:
    """That of the template which is at work."""
    found = _current.get()
    if found is None:
        raise SecurityError("a template's parts do not work outside it")
    return found


@contextmanager
def spending(limits: TemplateBudget) -> Iterator[TemplateBudget]:
    token = _current.set(limits)
    try:
        yield limits
    finally:
        _current.reset(token)
