"""Arguments that several commands share, and what they mean."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from satchel.exporter import ExportOptions
    from satchel.llm.sampling import SamplingOptions


def positive(text: str) -> int:
    number = int(text) if text.isdigit() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return number


def bits_and_group(text: str) -> tuple[int, int]:
    """``4,32`` is 4 bits in groups of 32; ``8,0`` is 8 bits with one scale per row."""
    parts = text.split(",")
    if len(parts) != 2 or not all(p.strip().isdigit() for p in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not BITS,GROUP such as 4,32 or 8,0")
    return int(parts[0]), int(parts[1])


def add_export_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what to make of the model")
    group.add_argument("--recipe", default="8da4w", metavar="NAME", help="fp32, fp16 or 8da4w")
    group.add_argument(
        "--group-size",
        type=positive,
        metavar="N",
        help="8da4w: weights that share a scale: 32, 64, 128 or 256 (32 if not given)",
    )
    group.add_argument(
        "--embedding",
        type=bits_and_group,
        metavar="BITS,GROUP",
        help="8da4w: bits of the embedding and its group, 0 for a whole row (4,GROUP_SIZE)",
    )
    group.add_argument(
        "--head-bits", type=int, choices=(4, 8), help="8da4w: bits of the output head (4)"
    )
    group.add_argument(
        "--mode",
        default="hybrid",
        choices=("hybrid", "kv"),
        help="hybrid reads prompts in blocks; kv one token at a time",
    )
    group.add_argument(
        "--prefill-ar-len",
        type=positive,
        default=128,
        metavar="N",
        help="hybrid: the most prompt tokens read at once",
    )
    group.add_argument(
        "--context",
        type=positive,
        default=2048,
        metavar="N",
        help="the most tokens of prompt and answer together",
    )


def export_options(arguments: argparse.Namespace) -> ExportOptions:
    from satchel.exporter import ExportOptions

    return ExportOptions(
        recipe=arguments.recipe,
        group_size=arguments.group_size,
        embedding=arguments.embedding,
        head_bits=arguments.head_bits,
        mode=arguments.mode,
        prefill_ar_len=arguments.prefill_ar_len,
        context=arguments.context,
    )


def add_generation_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("how to answer")
    group.add_argument(
        "--max-new-tokens",
        type=positive,
        default=512,
        metavar="N",
        help="stop after N tokens of answer",
    )
    group.add_argument(
        "--temperature",
        type=float,
        default=0.0,
        metavar="T",
        help="0 always takes the likeliest token; higher is more varied",
    )
    group.add_argument(
        "--top-k", type=int, default=0, metavar="K", help="of the K likeliest; 0: all"
    )
    group.add_argument("--top-p", type=float, default=1.0, metavar="P", help="of the likeliest P")
    group.add_argument(
        "--min-p", type=float, default=0.0, metavar="P", help="at least P times the likeliest"
    )
    group.add_argument(
        "--repetition-penalty", type=float, default=1.0, metavar="R", help="above 1: repeat less"
    )
    group.add_argument("--seed", type=int, metavar="N", help="the same seed gives the same text")
    group.add_argument(
        "--stop", action="append", default=[], metavar="TEXT", help="end before TEXT; repeatable"
    )
    group.add_argument(
        "--on-context-full",
        choices=("stop", "slide"),
        default="stop",
        help="stop, or slide: forget the oldest half and go on",
    )
    group.add_argument("--system", metavar="TEXT", help="a system message to begin with")


def sampling_options(arguments: argparse.Namespace) -> SamplingOptions:
    from satchel.llm.sampling import SamplingOptions

    return SamplingOptions(
        temperature=arguments.temperature,
        top_k=arguments.top_k,
        top_p=arguments.top_p,
        min_p=arguments.min_p,
        repetition_penalty=arguments.repetition_penalty,
        seed=arguments.seed,
    )


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
        "--verify", action="store_true", help="check every checksum, the weights' too, before use"
    )


def threads(arguments: argparse.Namespace) -> int:
    """0 stands for one per core."""
    return getattr(arguments, "threads", 0)
