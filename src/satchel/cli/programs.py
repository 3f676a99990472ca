"""Opens what a command was given: a program, or a model to make one of."""

from __future__ import annotations

import argparse
from pathlib import Path

from satchel.backends import find_target, writer_of
from satchel.cli.arguments import threads
from satchel.cli.output import say
from satchel.errors import InputError, SatchelError
from satchel.llm.llm import LLM
from satchel.llm.named_prompts import PREFIX, named_prompt
from satchel.progress import ProgressBar
from satchel.runtime.program import Program

_LONGEST_PROMPT = 64 << 20  # bytes: what has no end, as /dev/zero, must not take all memory


def find_program(source: str) -> Path:
    from satchel.exporter.cached import program_for

    if writer_of(source) and Path(source).exists():
        return Path(source)
    return program_for(source, progress=ProgressBar(), say=say)


def open_program(path: str, arguments: argparse.Namespace) -> Program:
    writer = writer_of(path)
    if writer is not None and Path(path).exists():
        return writer.open_written(Path(path))
    target, layers = getattr(arguments, "target", None), getattr(arguments, "gpu_layers", None)
    if layers is not None:
        target = find_target(target or Program(path).target).with_layers(layers).name
    program = Program(path, target=target)
    if arguments.verify:
        bar = ProgressBar()
        program.verify(lambda done, total: bar("Verifying", done, total))
        bar.close()
    return program


def open_llm(arguments: argparse.Namespace, mode: str | None = None) -> LLM:
    program = open_program(str(find_program(arguments.model)), arguments)
    if not program.is_language_model:
        name = program.about.architecture or "unknown"
        advice = "Run it with --input FILE."
        if program.about.kind == "speech":
            advice = "Give it sound: satchel transcribe FILE AUDIO."
        elif "text" in program.metadata:  # an encoder
            advice = "It makes vectors of texts: satchel embed FILE TEXT."
        raise InputError(
            f"{program.path} is a model of another kind ({name}), not a language model",
            advice,
        )
    adapter = getattr(arguments, "adapter", None)
    return LLM(program, threads(arguments), mode, adapter=None if adapter == "none" else adapter)


def tell_emulated(emulated: bool) -> None:
    """Nobody should take an emulator's speed for a chip's."""
    if emulated:
        say("This runs on an emulator: it computes what the chip would, and not as fast.")


def text_input(names: list[str], program: str) -> str:
    """The one text file that a language model is given with --input."""
    from satchel.vision.images import SUFFIXES

    name = names[0]
    if len(names) > 1 or Path(name).is_dir() or Path(name).suffix.lower() in {*SUFFIXES, ".npy"}:
        raise InputError(
            f"{program} is a language model, and {name} is not a text",
            "Give it --prompt TEXT, or a text file.",
        )
    return name


def read_prompt(arguments: argparse.Namespace) -> str | None:
    """The prompt from --prompt, --prompt-file, standard input for ``-``, or one with a name.

    One with a name has a system message too, unless one was given.
    """
    if arguments.prompt_file is None:
        return arguments.prompt if arguments.prompt is None else str(arguments.prompt)
    if arguments.prompt_file.startswith(PREFIX):
        named = named_prompt(arguments.prompt_file)
        if getattr(arguments, "raw", False):
            return f"{named.system} {named.user}"
        arguments.system = getattr(arguments, "system", None) or named.system
        return named.user
    try:
        if arguments.prompt_file == "-":
            import sys

            data = sys.stdin.buffer.read(_LONGEST_PROMPT + 1)
        else:
            with open(arguments.prompt_file, "rb") as file:
                data = file.read(_LONGEST_PROMPT + 1)
        if len(data) > _LONGEST_PROMPT:
            raise SatchelError(
                f"{arguments.prompt_file} is longer than a prompt may be, "
                f"{_LONGEST_PROMPT >> 20} MB",
                "No model reads that much.",
            )
        return data.decode().replace("\r\n", "\n").replace("\r", "\n")  # as text files are read
    except UnicodeDecodeError:
        raise SatchelError(
            f"{arguments.prompt_file} is not UTF-8 text", "Convert it first."
        ) from None
