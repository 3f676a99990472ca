"""satchel embed: vectors of texts, for search and comparison."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from satchel.cli.arguments import add_program_options, threads
from satchel.cli.output import emit, print_json, say
from satchel.cli.programs import find_program, open_program, tell_emulated
from satchel.errors import ConfigError, InputError
from satchel.files import lines_of
from satchel.runtime.program import Program

HELP = "make vectors of texts"
_SHOWN = 8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model",
        metavar="FILE",
        help="a program that was exported with --task feature-extraction, or with --pooling",
    )
    parser.add_argument("texts", metavar="TEXT", nargs="*", help="- is those of standard input")
    parser.add_argument(
        "--input", metavar="FILE", help="texts, one on each line; - is standard input"
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="write them: texts and embeddings in a .npz, or .npy"
    )
    parser.add_argument(
        "--prompt", metavar="NAME", help="what texts begin with, by the model's names (query)"
    )
    add_program_options(parser)


def execute(arguments: argparse.Namespace) -> None:
    texts = _texts(arguments)
    if arguments.output and Path(arguments.output).suffix not in (".npz", ".npy"):
        raise ConfigError(f"{arguments.output} is neither .npz nor .npy", "Name one of them.")
    program = open_program(str(find_program(arguments.model)), arguments)
    vectors, tokens = _embed(program, texts, arguments)
    if arguments.output:
        _write(Path(arguments.output), texts, vectors)
    if arguments.json:
        print_json(
            {
                "model": program.metadata.get("name"),
                "dimensions": int(vectors.shape[1]),
                "embeddings": [
                    {"text": text, "tokens": count, "embedding": [float(x) for x in vector]}
                    for text, count, vector in zip(texts, tokens, vectors, strict=True)
                ],
            }
        )
        return
    if arguments.output:
        say(f"{arguments.output}: {len(texts)} vectors of {vectors.shape[1]} numbers")
        return
    for text, vector in zip(texts, vectors, strict=True):
        first = " ".join(f"{number:.5f}" for number in vector[:_SHOWN])
        more = f" … ({vector.size} numbers; --json or -o for all)" if vector.size > _SHOWN else ""
        emit(f"{text}\n  {first}{more}")


def _texts(arguments: argparse.Namespace) -> list[str]:
    texts: list[str] = list(arguments.texts)
    if texts == ["-"] and not arguments.input:
        texts, arguments.input = [], "-"
    if arguments.input:
        try:
            standard = arguments.input == "-"
            data = sys.stdin.buffer.read() if standard else Path(arguments.input).read_bytes()
            texts += [line for line in lines_of(data.decode()) if line.strip()]
        except UnicodeDecodeError:
            raise InputError(f"{arguments.input} is not UTF-8 text", "Convert it first.") from None
    if not texts:
        raise ConfigError("there is no text", "Give TEXT, or --input FILE.")
    return texts


def _embed(
    program: Program, texts: list[str], arguments: argparse.Namespace
) -> tuple[Any, list[int]]:
    """The vectors, and how many tokens each text has."""
    if program.is_language_model:
        from satchel.llm.llm import LLM

        if arguments.prompt:
            raise ConfigError("--prompt is for encoders", "Write it in front of the text.")
        llm = LLM(program, threads(arguments))
        return np.stack([llm.embed(t) for t in texts]), _counts(llm.tokenizer.encode, texts)
    from satchel.text.encoder import TextEncoder

    encoder = TextEncoder(program, threads(arguments))
    tell_emulated(encoder.emulated)
    vectors = encoder.embed(texts, prompt=arguments.prompt)
    counts = _counts(lambda text: encoder.tokens(text, truncate=True), texts)
    for text, count in zip(texts, counts, strict=True):
        if count == encoder.rules.max_length:
            say(f"read up to its token {count}, which is the model's last: {text[:40]!r}")
    return vectors, counts


def _counts(encode: Callable[[str], list[int]], texts: list[str]) -> list[int]:
    return [len(encode(text)) for text in texts]


def _write(path: Path, texts: list[str], vectors: Any) -> None:
    if path.suffix == ".npz":
        np.savez(path, texts=np.array(texts), embeddings=vectors)
    else:
        np.save(path, vectors)
