"""The options of run and chat that say how to answer."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from satchel.cli.arguments import add_lookahead_sizes, lookahead_sizes, positive
from satchel.errors import ConfigError, InputError

_SAMPLING = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed")


def _sampling(name: str, number: Callable[[str], Any]) -> Callable[[str], Any]:
    """The value of a sampling option; what no model could take is wrong usage."""

    def read(text: str) -> Any:
        from satchel.llm.sampling import SamplingOptions

        try:
            value = number(text)
        except ValueError:
            kind = "whole number" if number is int else "number"
            raise argparse.ArgumentTypeError(f"{text!r} is not a {kind}") from None
        try:
            SamplingOptions(**{name: value})
        except ConfigError as error:
            raise argparse.ArgumentTypeError(error.on_command_line) from None
        return value

    return read


def add_generation_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("how to answer")
    group.add_argument("--system", metavar="TEXT", help="a system message to begin with")
    group.add_argument(
        "--max-new-tokens",
        type=positive,
        metavar="N",
        help="stop after N tokens of answer (default: where the answer or the context ends)",
    )
    group.add_argument(
        "--seq-len",
        type=positive,
        metavar="N",
        help="stop when prompt and answer together have N tokens",
    )
    group.add_argument(
        "--temperature",
        type=_sampling("temperature", float),
        metavar="T",
        help="0 always takes the likeliest token; higher is more varied. This and the next five: "
        "default is what the model's generation_config.json says, else greedy",
    )

    def add(flag: str, name: str, number: Callable[[str], Any], metavar: str, told: str) -> None:
        group.add_argument(flag, type=_sampling(name, number), metavar=metavar, help=told)

    add("--top-k", "top_k", int, "K", "of the K likeliest; 0: all")
    add("--top-p", "top_p", float, "P", "of the likeliest P")
    add("--min-p", "min_p", float, "P", "at least P times the likeliest")
    add("--repetition-penalty", "repetition_penalty", float, "R", "above 1: repeat less")
    add("--seed", "seed", int, "N", "the same seed gives the same text")
    group.add_argument(
        "--stop", action="append", default=[], metavar="TEXT", help="end before TEXT; repeatable"
    )
    form = group.add_mutually_exclusive_group()
    form.add_argument(
        "--schema", metavar="JSON", help="answer with JSON that this JSON Schema (or @FILE) allows"
    )
    form.add_argument("--regex", metavar="PATTERN", help="the whole answer matches it")
    form.add_argument(
        "--grammar", metavar="TEXT", help="the answer has this grammar (or @FILE): Lark or GBNF"
    )
    group.add_argument(
        "--on-context-full",
        choices=("stop", "slide"),
        help="stop, or slide: forget the oldest half and go on (default: stop for one answer, "
        "slide in a conversation)",
    )
    group.add_argument(
        "--thinking",
        choices=("on", "off"),
        help="for models that can: reason first, or answer at once",
    )
    group.add_argument(
        "--adapter", metavar="NAME", help="answer with this adapter of the program (default: none)"
    )
    group.add_argument(
        "--lookahead",
        choices=("auto", "on", "off"),
        help="guess ahead when greedy; the text stays the same; auto: where it is faster (default)",
    )
    add_lookahead_sizes(group)


def generation_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """The arguments as :meth:`satchel.LLM.generate` takes them."""
    return {
        **given_sampling(arguments),
        "max_new_tokens": arguments.max_new_tokens,
        "seq_len": arguments.seq_len,
        "stop": arguments.stop,
        "schema": _text_or_file(arguments.schema),
        "regex": arguments.regex,
        "grammar": _text_or_file(arguments.grammar),
        "on_context_full": arguments.on_context_full or "stop",
        "lookahead": arguments.lookahead,
        "lookahead_sizes": lookahead_sizes(arguments),
        "template_variables": template_variables(arguments),
    }


def _text_or_file(given: str | None) -> str | None:
    """``@FILE`` stands for what is in the file."""
    if given is None or not given.startswith("@"):
        return given
    try:
        return Path(given[1:]).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{given[1:]} is not UTF-8 text", "Convert it first.") from None


def given_sampling(arguments: argparse.Namespace) -> dict[str, Any]:
    return {name: getattr(arguments, name) for name in _SAMPLING}


def template_variables(arguments: argparse.Namespace) -> dict[str, Any]:
    """Templates of models that reason look at ``enable_thinking``."""
    return {} if arguments.thinking is None else {"enable_thinking": arguments.thinking == "on"}
