"""Runs of the same work one after another: how many, and what their medians are."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from satchel.cli.arguments import count, not_negative, positive
from satchel.llm.generation import GenerationStats

SPEEDS = ("prefill_tok_s", "decode_tok_s", "ttft_s")


def add_repeat_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("to measure")
    group.add_argument(
        "--warmup", "--warm-up", type=count, default=0, metavar="N", help="runs that do not count"
    )
    group.add_argument(
        "--iterations",
        "--iteration",
        "--num-iters",
        "--num-executions",
        type=positive,
        default=1,
        metavar="N",
        help="runs that count, each from an empty cache; their medians are told",
    )
    add_cool_down(group)


def add_cool_down(group: argparse._ArgumentGroup | argparse.ArgumentParser) -> None:
    group.add_argument(
        "--cool-down",
        type=not_negative,
        default=0.0,
        metavar="S",
        help="seconds of rest before every run but the first: phones slow down when they are warm",
    )


def is_repeated(arguments: argparse.Namespace) -> bool:
    return bool(arguments.iterations > 1 or arguments.warmup > 0)


def each_run(arguments: argparse.Namespace, tell: Callable[[str], None]) -> Iterator[bool]:
    """For every run in turn, whether it counts."""
    for number in range(arguments.warmup + arguments.iterations):
        if number and arguments.cool_down:
            tell(f"cooling down for {arguments.cool_down:g} s")
            time.sleep(arguments.cool_down)
        counts = number >= arguments.warmup
        if counts:
            tell(f"run {number - arguments.warmup + 1} of {arguments.iterations}")
        else:
            tell(f"warm-up {number + 1} of {arguments.warmup}")
        yield counts


def medians(runs: Sequence[GenerationStats]) -> dict[str, Any]:
    """The middle of each speed, and its lowest and highest."""
    result: dict[str, Any] = {"iterations": len(runs)}
    for name in SPEEDS:
        values = [getattr(run, name) for run in runs]
        result[name] = statistics.median(values)
        result[f"{name}_spread"] = [min(values), max(values)]
    return result


def median_lines(found: dict[str, Any]) -> Iterator[str]:
    """As ``satchel run`` prints them."""
    count = found["iterations"]
    yield "one run:" if count == 1 else f"medians of {count} runs:"
    names = {"prefill_tok_s": "prefill", "decode_tok_s": "decode"}
    for key, name in names.items():
        low, high = found[f"{key}_spread"]
        yield f"{name:<20} {found[key]:9.1f} tok/s  ({low:.1f} to {high:.1f})"
    low, high = found["ttft_s_spread"]
    yield f"{'time to first token':<20} {found['ttft_s']:9.3f} s      ({low:.3f} to {high:.3f})"
