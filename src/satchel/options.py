"""How an option is described, once: its field in a dataclass, and all that other faces need."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from dataclasses import Field, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Option:
    """What the command line and a YAML file need to know of a field."""

    help: str
    metavar: str | None = None
    parse: Callable[[str], Any] = str
    yaml: tuple[type, ...] = (str,)


def option(
    default: Any,
    help: str,
    *,
    metavar: str | None = None,
    parse: Callable[[str], Any] = str,
    yaml: tuple[type, ...] = (str,),
) -> Any:
    """A field of a dataclass that is an option."""
    return field(default=default, metadata={"option": Option(help, metavar, parse, yaml)})


def positive(text: str) -> int:
    number = int(text) if text.isdigit() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return number


def add_options(group: argparse._ArgumentGroup, described: Iterable[Field[Any]]) -> None:
    """A flag for each field that is an option; none has a default, so that a YAML file can tell
    what was not given."""
    for each in described:
        told: Option = each.metadata["option"]
        group.add_argument(
            "--" + each.name.replace("_", "-"),
            type=told.parse,
            metavar=told.metavar,
            help=told.help,
        )
