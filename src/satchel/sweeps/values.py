"""Single values of an experiment's file: what they must be, and what is said if they are not."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from satchel.errors import ConfigError

_LARGEST = 1_000_000_000
_LONGEST_PATH = 4096


def as_list(value: Any) -> list[Any]:
    """One value stands for a list of it."""
    return [] if value is None else list(value) if isinstance(value, (list, tuple)) else [value]


def as_number(value: Any, key: str, where: str, least: int = 1) -> float:
    """Seconds, degrees: any number."""
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not least <= value <= _LARGEST
    ):
        raise ConfigError(
            f"{key} in {where} must be a number from {least} on, not {in_short(value)}"
        )
    return float(value)


def as_count(value: Any, key: str, where: str, least: int = 1) -> int:
    """A whole number."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _LARGEST:
        told = f"a whole number from {least} to {_LARGEST:,}"
        raise ConfigError(f"{key} in {where} must be {told}, not {in_short(value)}")
    return value


def as_text(value: Any, key: str, where: str) -> str:
    """A text, as names and paths are."""
    if not isinstance(value, str):
        raise ConfigError(f"{key} in {where} must be a text, not {in_short(value)}")
    return value


def as_name(value: Any, key: str, where: str) -> str:
    """A text, or a number, that can stand in a line of a table."""
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str) or not text.strip() or not text.isprintable():
        raise ConfigError(f"{key} in {where} must be a text of one line, not {in_short(value)}")
    return text


def in_short(value: Any) -> str:
    """For a message."""
    try:
        return repr(value)[:80]
    except ValueError:  # Python does not write down numbers of many thousand digits
        return "a number of many digits"


def absolute(name: str, folder: Path) -> str:
    """A path that is there, from the folder of the experiment; any other text as it is."""
    if not name or len(name) > _LONGEST_PATH or "\0" in name:
        return name
    path = folder / os.path.expanduser(name)
    try:
        return str(path.resolve()) if path.exists() else name
    except OSError:  # a part of it is longer than names may be
        return name


def as_switch(value: Any, key: str, where: str) -> bool:
    """A text such as "no" is true to Python, and meant otherwise."""
    if not isinstance(value, bool):
        raise ConfigError(f"{key} in {where} must be true or false, not {in_short(value)}")
    return value
