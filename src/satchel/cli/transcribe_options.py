"""Flags of ``satchel transcribe``: how a text is searched for and judged."""

from __future__ import annotations

import argparse
import math
from typing import Any

from satchel.cli.arguments import not_negative, positive


def add_search_options(parser: argparse.ArgumentParser) -> None:
    """How texts are searched for and judged: SpeechOptions' names, and those of openai-whisper."""
    group = parser.add_argument_group("how a text is found")
    add = group.add_argument
    add("--beams", "--beam-size", type=positive, metavar="N", help="texts to follow at a time (1)")
    add("--patience", type=not_negative, metavar="X", help="end with X times N texts (1)")
    add("--length-penalty", type=not_negative, metavar="A", help="0 to 1: favours long texts")
    add(
        "--samples",
        "--best-of",
        type=positive,
        metavar="N",
        help="texts drawn at temperatures above 0, of which the best is taken (5)",
    )
    add(
        "--temperatures",
        metavar="T,T,…",
        type=_temperatures,
        help="to try until the text is good (0,0.2,0.4,0.6,0.8,1)",
    )
    add(
        "--compression-limit",
        "--compression-ratio-threshold",
        type=_limit,
        metavar="X",
        help="a text that can be written X times shorter is tried again; none: never (2.4)",
    )
    add(
        "--log-probability-limit",
        "--logprob-threshold",
        type=_limit,
        metavar="X",
        help="so is one that is less likely than that, on average; none: never (-1)",
    )
    add(
        "--no-speech-limit",
        "--no-speech-threshold",
        type=_limit,
        metavar="P",
        help="silence from that probability on, if the text is unlikely; none: never (0.6)",
    )


_SEARCH = (
    "beams",
    "patience",
    "length_penalty",
    "samples",
    "temperatures",
    "compression_limit",
    "log_probability_limit",
    "no_speech_limit",
)


def _temperatures(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} are not temperatures; write for example 0,0.2,0.4"
        ) from None


_NEVER = "none"  # of a limit: argparse's None is an option that was not given


def _limit(text: str) -> float | str:
    if text.lower() == _NEVER:
        return _NEVER
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise argparse.ArgumentTypeError(f"{text!r} is neither a number nor {_NEVER}")
    return number


def search_choices(arguments: argparse.Namespace) -> dict[str, Any]:
    """What was chosen, as fields of SpeechOptions."""
    given = {name: getattr(arguments, name) for name in _SEARCH}
    return {k: None if v == _NEVER else v for k, v in given.items() if v is not None}
