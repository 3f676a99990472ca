"""Arguments that several commands share, and what they mean."""

from __future__ import annotations

import argparse
import json
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from satchel.errors import ConfigError

if TYPE_CHECKING:
    from satchel.llm.lookahead.options import LookaheadSizes


def positive(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0
    if not 1 <= number < 1 << 31:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0, or too large")
    return number


def bits_and_group(text: str) -> tuple[int, int]:
    """``4,32`` is 4 bits in groups of 32; ``8,0`` is 8 bits with one scale per row."""
    from satchel.exporter.options import parse_embedding

    try:
        return parse_embedding(text)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def pattern_and_scheme(text: str) -> tuple[str, str]:
    from satchel.quantize.overrides import split_override

    try:
        return split_override(text)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def name_and_folder(text: str) -> tuple[str, str]:
    from satchel.exporter.options import split_adapter

    try:
        return split_adapter(text)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"{text!r} is not a JSON object")
    return value


def add_export_options(parser: argparse.ArgumentParser) -> None:
    """Nothing has a default here, so that a YAML file can tell what was not given."""
    from satchel.backends import families, own_options
    from satchel.options import add_options

    forms = "; ".join(family.form for family in families().values())
    for name, family in families().items():
        if own := own_options(family):
            add_options(parser.add_argument_group(f"for --target {name}"), own)
    group = parser.add_argument_group("what to make of the model")
    group.add_argument(
        "--target",
        action="append",
        metavar="CHIP",
        help=f"what to export for: {forms}; several with commas, or repeated (cpu)",
    )
    group.add_argument(
        "--recipe",
        metavar="NAME",
        help="fp32, fp16, 16a8w, 8a8w, 16a4w or 8da4w; keep takes what is quantised already as it "
        "is (8da4w); for torchvision:NAME also int8 (fp32)",
    )
    group.add_argument(
        "--group-size",
        type=positive,
        metavar="N",
        help="weights that share a scale: 32, 64, 128 or 256; with 16a4w 16, 32 or 64 (32)",
    )
    group.add_argument(
        "--embedding",
        type=bits_and_group,
        metavar="BITS,GROUP",
        help="bits of the embedding and its group, 0 for a whole row (8,0; 8da4w: 4,GROUP_SIZE)",
    )
    group.add_argument(
        "--head-bits", type=int, choices=(4, 8), help="bits of the output head (8; 8da4w: 4)"
    )
    group.add_argument(
        "--kv-bits",
        type=int,
        choices=(8, 16, 32),
        help="bits of the KV cache, with any recipe (16; fp32: 32)",
    )
    group.add_argument(
        "--activation-bits",
        type=int,
        choices=(8, 16),
        help="bits of rounded activations (the recipe's own; keep: 16)",
    )
    group.add_argument(
        "--override",
        dest="overrides",
        type=pattern_and_scheme,
        action="append",
        metavar="PATTERN=SCHEME",
        help="another scheme for some layers: 'layers.*.mlp.down=16a8w', '*.0.*=8da4w:64'; "
        "repeatable, the last that matches counts",
    )
    group.add_argument(
        "--calibrate",
        metavar="TEXT",
        help="run the float model on a text first, to round what matters best: a UTF-8 file, "
        "prompt:WORDS, or task:NAME[=FILE] of lm-eval; for torchvision:NAME a folder of images",
    )
    group.add_argument(
        "--calibrate-limit",
        type=positive,
        metavar="N",
        help="its first N tokens (16384), or images (64)",
    )
    group.add_argument(
        "--rounding",
        choices=("plain", "search", "gptq"),
        help="plain; search: the best of several scales; gptq: errors made up for by other "
        "weights, needs --calibrate (plain; with --calibrate gptq)",
    )
    group.add_argument(
        "--rotate",
        action="store_true",
        default=None,
        help="turn the hidden states into a basis without outliers, folded into the weights; a "
        "tied head becomes a weight of its own",
    )
    group.add_argument(
        "--rotate-online",
        action="store_true",
        default=None,
        help="with --rotate: also what the last layer of an MLP reads and, with --kv-bits 8, "
        "queries and keys, which takes some work at run time",
    )
    group.add_argument(
        "--mode",
        choices=("hybrid", "kv", "lookahead"),
        help="hybrid reads prompts in blocks, kv one token at a time; lookahead is hybrid and "
        "guesses ahead unless told otherwise (hybrid)",
    )
    add_lookahead_sizes(group)
    group.add_argument(
        "--prefill-ar-len",
        type=positive,
        metavar="N",
        help="hybrid: the most prompt tokens read at once (the target's; cpu: 256)",
    )
    group.add_argument(
        "--context",
        type=positive,
        metavar="N",
        help="the most tokens of prompt and answer together (2048)",
    )
    group.add_argument(
        "--metadata",
        type=json_object,
        metavar="JSON",
        help="""override the checkpoint's tokens: '{"get_bos_id": 1, "get_eos_ids": [2]}'""",
    )
    group.add_argument(
        "--lora",
        action="append",
        metavar="FOLDER",
        help="add a LoRA adapter of PEFT's to the weights before they are rounded; repeatable",
    )
    group.add_argument(
        "--adapter",
        dest="adapters",
        type=name_and_folder,
        action="append",
        metavar="NAME=FOLDER",
        help="keep a LoRA adapter of PEFT's apart, to be chosen with run --adapter; repeatable",
    )
    meta = parser.add_argument_group("Llama checkpoints of Meta's that come quantised")
    meta.add_argument(
        "--preq-mode",
        choices=("8da4w", "8da4w_output_8da8w"),
        help="keep the codes, with activations of 8 bits; the output in 4 or 8 bits",
    )
    meta.add_argument(
        "--preq-group-size", type=positive, metavar="N", help="check that groups have this size"
    )
    meta.add_argument(
        "--preq-embedding",
        type=bits_and_group,
        metavar="BITS,GROUP",
        help="check that the embedding is like this (8,0: 8 bits, a scale for each row)",
    )
    meta.add_argument(
        "--lora-rank", type=positive, metavar="N", help="check that there are adaptors of this rank"
    )
    group.add_argument(
        "--config", metavar="FILE", help="a YAML file with these options; flags override it"
    )


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
    return LookaheadSizes(**given) if given else None


def export_choices(arguments: argparse.Namespace) -> dict[str, Any]:
    """What the YAML file and the flags chose, flags first; includes source and output."""
    from satchel.backends import DEFAULT, find_targets, target_options
    from satchel.exporter.options import ExportOptions, read_options_file

    choices = read_options_file(arguments.config) if arguments.config else {}
    own = [f.name for each in target_options().values() for f in each]
    names = [f.name for f in fields(ExportOptions)] + ["source", "output", *own]
    given = {name: getattr(arguments, name) for name in names}
    if given["overrides"] is not None:  # those of the command line come last, and so count
        given["overrides"] = choices.get("overrides", {}) | dict(given["overrides"])
    if given["target"] is not None:
        given["target"] = ",".join(given["target"])
    if given["lora"] is not None:
        given["lora"] = (*choices.get("lora", ()), *given["lora"])
    if given["adapters"] is not None:
        given["adapters"] = choices.get("adapters", {}) | dict(given["adapters"])
    choices |= {name: value for name, value in given.items() if value is not None}
    chosen = {name: choices.pop(name) for name in own if name in choices}
    choices["target"] = find_targets(choices.get("target", DEFAULT), **chosen)
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
        "--verify", action="store_true", help="check every checksum, the weights' too, before use"
    )


def threads(arguments: argparse.Namespace) -> int:
    """0 stands for one per core."""
    return getattr(arguments, "threads", 0)
