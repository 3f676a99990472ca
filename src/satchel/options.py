"""One schema of options: a dataclass whose fields tell all that its faces need.

A field made with :func:`option` is an argument from Python, a flag (``--group-size``) and a key of
a YAML file (``group_size``). The kind says how each of them is read.
"""

from __future__ import annotations

import argparse
import difflib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any

from satchel.errors import ConfigError


@dataclass(frozen=True)
class Kind:
    """How a value is read from an argument, and from what a YAML file holds."""

    from_text: Callable[[str], Any] = str
    yaml: tuple[type, ...] = (str,)
    from_yaml: Callable[[Any], Any] = lambda value: value
    gather: Callable[[list[Any]], Any] | None = None  # of a flag that may be repeated
    join: Callable[[Any, Any], Any] = lambda _file, flags: flags  # what both have chosen


def _positive(text: str) -> int:
    number = int(text) if text.isdigit() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return number


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise argparse.ArgumentTypeError(f"{text[:80]!r} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"{text[:80]!r} is not a JSON object")
    return value


def _argument(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """A parser whose error is argparse's."""

    def read(text: str) -> Any:
        try:
            return parse(text)
        except ConfigError as error:
            raise argparse.ArgumentTypeError(error.on_command_line) from None

    return read


def parsed(parse: Callable[[str], Any]) -> Kind:
    """A text with a meaning; in a YAML file also a list of its parts: ``4,32`` or ``[4, 32]``."""

    def from_yaml(value: Any) -> Any:
        return parse(value if isinstance(value, str) else ",".join(map(str, value)))

    return Kind(_argument(parse), (str, list), from_yaml)


def pairs(split: Callable[[str], tuple[str, str]]) -> Kind:
    """``NAME=VALUE``, repeatable; in a YAML file a list of these, or keys and values."""

    def from_yaml(value: Any) -> dict[str, str]:
        if isinstance(value, dict):
            return {str(name): _text(item) for name, item in value.items()}
        return dict(split(_text(item)) for item in value)

    return Kind(_argument(split), (dict, list), from_yaml, dict, lambda file, flags: file | flags)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"{value!r} is not a text")
    return value


def _listed(value: Any) -> tuple[str, ...]:
    return tuple(map(str, value if isinstance(value, list) else [value]))


TEXT = Kind()
NUMBER = Kind(float, (int, float))
INTEGER = Kind(int, (int,))
POSITIVE = Kind(_positive, (int,))
SWITCH = Kind(yaml=(bool,))
OBJECT = Kind(_json_object, (dict,))
TEXTS = Kind(str, (str, list), _listed, tuple, lambda file, flags: (*file, *flags))


@dataclass(frozen=True)
class Option:
    """What the faces need to know of a field."""

    help: str
    kind: Kind = TEXT
    metavar: str | None = None
    choices: tuple[Any, ...] = ()
    flag: str = ""  # where it is not the field's name
    group: str = ""
    also: tuple[str, ...] = ()  # what others call the flag; not in the help


def option(
    default: Any,
    help: str,
    kind: Kind = TEXT,
    *,
    metavar: str | None = None,
    choices: tuple[Any, ...] = (),
    flag: str = "",
    group: str = "",
    also: tuple[str, ...] = (),
) -> Any:
    """A field of a dataclass that is an option. A default that is a class is called for each."""
    told = {"option": Option(help, kind, metavar, choices, flag, group, also)}
    if isinstance(default, type):
        return field(default_factory=default, metadata=told)
    return field(default=default, metadata=told)


def options_of(schema: Any) -> list[Field[Any]]:
    """The fields of a dataclass that are options."""
    return [each for each in fields(schema) if "option" in each.metadata]


def flag_of(each: Field[Any]) -> str:
    told: Option = each.metadata["option"]
    return "--" + (told.flag or each.name).replace("_", "-")


def add_flags(
    parser: argparse.ArgumentParser, described: Iterable[Field[Any]], group: str = ""
) -> None:
    """A flag for each; none has a default, so that a YAML file can tell what was not given."""
    made: dict[str, argparse._ArgumentGroup] = {}
    for each in described:
        told: Option = each.metadata["option"]
        title = told.group or group
        if title not in made:
            made[title] = parser.add_argument_group(title)
        more: dict[str, Any] = {"dest": each.name, "default": None, "help": told.help}
        if told.kind is SWITCH:
            made[title].add_argument(flag_of(each), action="store_true", **more)
            continue
        if told.kind.gather:
            more["action"] = "append"
        if told.choices:
            more["choices"] = told.choices
        more |= {"type": told.kind.from_text, "metavar": told.metavar}
        made[title].add_argument(flag_of(each), **more)
        for name in told.also:
            made[title].add_argument(f"--{name}", **more | {"help": argparse.SUPPRESS})


def join_choices(
    described: Iterable[Field[Any]], file: Mapping[str, Any], arguments: argparse.Namespace
) -> dict[str, Any]:
    """What a YAML file and the flags chose; where both did, flags count."""
    chosen = dict(file)
    for each in described:
        given, kind = getattr(arguments, each.name), each.metadata["option"].kind
        if given is None:
            continue
        given = kind.gather(given) if kind.gather else given
        chosen[each.name] = kind.join(file[each.name], given) if each.name in file else given
    return chosen


def read_yaml_value(each: Field[Any], value: Any, where: str) -> Any:
    """A value of a YAML file as the field has it."""
    kind: Kind = each.metadata["option"].kind
    if not isinstance(value, kind.yaml) or (isinstance(value, bool) and bool not in kind.yaml):
        kinds = " or ".join(t.__name__ for t in kind.yaml)
        raise ConfigError(f"{each.name} in {where} must be {kinds}, not {value!r}")
    try:
        return kind.from_yaml(value)
    except ConfigError as error:
        raise ConfigError(f"{each.name} in {where}: {error.message}", error.advice) from None


def check_keys(given: Mapping[str, Any], known: Mapping[str, Any], where: str) -> None:
    """A key that nobody knows is an error that names the nearest one that somebody does."""
    for key in given:
        if key not in known:
            # Letters that changed places leave two that are equally near: modles, modes, models.
            near = difflib.get_close_matches(str(key), known, 2, cutoff=0.8)
            near = near or difflib.get_close_matches(str(key), known, 1)
            listed = f"It may have {', '.join(known)}."
            raise ConfigError(
                f"{where} has the unknown key {key!r}",
                f"Did you mean {' or '.join(map(repr, near))}?" if near else listed,
            )
