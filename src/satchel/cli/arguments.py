"""Arguments that several commands share, and what they mean."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import Field
from typing import TYPE_CHECKING, Any

from satchel.errors import ConfigError, RecipeError, UsageError

if TYPE_CHECKING:
    from satchel.llm.lookahead.options import LookaheadSizes


def positive(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0
    if not 1 <= number < 1 << 31:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0, or too large")
    return number


def count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number, 0 or more")
    return int(text)


def not_negative(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 on")
    return number


@contextmanager
def wrong_usage() -> Iterator[None]:
    """While options are put together: what cannot be chosen, whatever the model, is wrong usage."""
    try:
        yield
    except (ConfigError, RecipeError) as error:
        raise UsageError(error.message, error.advice) from error


def add_export_options(parser: argparse.ArgumentParser) -> None:
    """A flag for every option of an export, from its schema."""
    from satchel.backends import families, target_options
    from satchel.exporter.module_options import ModuleOptions
    from satchel.exporter.options import ExportOptions
    from satchel.options import add_flags, options_of

    add_flags(parser, options_of(ExportOptions))
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="a YAML file with these options, or one of ExecuTorch's export_llm, with its "
        "++group.key=value behind; flags override it",
    )
    known = {each.name: each for own in target_options().values() for each in own}
    groups: dict[str, list[Field[Any]]] = {}  # by which targets have them
    for each in known.values():
        having = [n for n, own in target_options().items() if each.name in {o.name for o in own}]
        groups.setdefault(f"for --target {', '.join(having)}", []).append(each)
    for title, own in groups.items():
        add_flags(parser, own, title)
    add_flags(parser, options_of(ModuleOptions))
    forms = "; ".join(family.form for family in families().values())
    for action in parser._actions:
        if action.help and "{targets}" in action.help:
            action.help = action.help.format(targets=forms)


def add_lookahead_sizes(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--ngram", type=int, metavar="N", help="lookahead: guesses have up to N - 1 tokens (4)"
    )
    group.add_argument(
        "--window",
        type=int,
        metavar="W",
        help="lookahead: positions worked on ahead; 0 guesses from the text so far only (4)",
    )
    group.add_argument(
        "--gcap", type=int, metavar="G", help="lookahead: the most guesses verified at once (4)"
    )


def lookahead_sizes(arguments: argparse.Namespace) -> LookaheadSizes | None:
    """None if nothing was given: then the program's own count."""
    from satchel.llm.lookahead.options import LookaheadSizes

    chosen = {name: getattr(arguments, name) for name in ("ngram", "window", "gcap")}
    given = {name: value for name, value in chosen.items() if value is not None}
    with wrong_usage():
        return LookaheadSizes(**given) if given else None


def export_choices(arguments: argparse.Namespace) -> dict[str, Any]:
    """What the YAML file and the flags chose, flags first; includes source and output."""
    from satchel.backends import DEFAULT, find_targets, target_options
    from satchel.cli.output import say
    from satchel.exporter.executorch_config import OUTPUT_NAME, output_of
    from satchel.exporter.options_file import PLACES, all_options, read_options_file
    from satchel.options import join_choices

    overrides = getattr(arguments, "overrides_of_groups", [])
    file = read_options_file(arguments.config, overrides, say)
    theirs = file.pop(OUTPUT_NAME, None)
    choices = join_choices(all_options().values(), file, arguments)
    given = {name: getattr(arguments, name) for name in PLACES}
    choices |= {name: value for name, value in given.items() if value is not None}
    own = [each.name for listed in target_options().values() for each in listed]
    chosen = {name: choices.pop(name) for name in own if name in choices}
    with wrong_usage():
        choices["target"] = find_targets(choices.get("target", DEFAULT), **chosen)
    if theirs is not None and "output" not in choices:
        choices["output"] = output_of(theirs, choices["target"][0].writes.suffix)
        say(f"export.output_name: {theirs} became output: {choices['output']}")
    return choices


def add_program_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("how to run")
    group.add_argument(
        "--threads",
        type=positive,
        default=argparse.SUPPRESS,
        metavar="N",
        help="threads to use (default: one per core)",
    )
    group.add_argument(
        "--target",
        metavar="CHIP",
        help="where to run it, if it is for several targets (the one it names first); cpu runs all",
    )
    group.add_argument(
        "--gpu-layers",
        type=count,
        metavar="N",
        help="of a target that is a GPU: how many layers it runs (as many as it has memory for)",
    )
    group.add_argument(
        "--verify", action="store_true", help="check every checksum, the weights' too, before use"
    )


def threads(arguments: argparse.Namespace) -> int:
    """0 stands for one per core."""
    return getattr(arguments, "threads", 0)
