"""satchel chat: a conversation in the terminal."""

from __future__ import annotations

import argparse
import contextlib
import sys
from typing import TYPE_CHECKING

from satchel.cli.arguments import add_program_options
from satchel.cli.generation import add_generation_options, generation_options
from satchel.cli.output import say
from satchel.errors import ConfigError, SatchelError, TemplateError

if TYPE_CHECKING:
    from satchel.llm.llm import LLM, Chat

HELP = "talk to a model; a known name is fetched and exported on first use"

_COMMANDS = "/reset starts over, /exit leaves (or Ctrl-D); Ctrl-C stops an answer"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model", metavar="MODEL", help="a program, a name such as smollm2-135m, or a checkpoint"
    )
    prompt = parser.add_mutually_exclusive_group()
    prompt.add_argument("--prompt", metavar="TEXT", help="answer this and leave")
    prompt.add_argument("--prompt-file", metavar="FILE", help="the same from a file, - for stdin")
    add_generation_options(parser)
    add_program_options(parser)


def execute(arguments: argparse.Namespace) -> None:
    from satchel.cli.answer import answer
    from satchel.cli.programs import open_llm, read_prompt

    prompt = read_prompt(arguments)
    if prompt is None and arguments.json:
        raise ConfigError("a conversation is not one JSON object", "Give --prompt with --json.")
    llm = open_llm(arguments)
    if not llm.has_chat_template:
        raise TemplateError(
            f"{llm.program.path} has no chat template, so it cannot chat",
            "It is a base model: continue a text with satchel run FILE --raw --prompt TEXT.",
        )
    if prompt is not None:
        answer(llm, prompt, arguments)
    else:
        _converse(llm, arguments)


def _converse(llm: LLM, arguments: argparse.Namespace) -> None:
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  line editing and history for input()
    name = llm.program.metadata.get("name", llm.program.path.name)
    say(f"{name}, {llm.session.context} tokens of context. {_COMMANDS}.")
    options = generation_options(arguments)
    chat = llm.chat(arguments.system, **options)
    while True:
        try:
            text = input("> " if sys.stdin.isatty() else "").strip()
        except EOFError:
            break
        except KeyboardInterrupt:
            say("")
            break
        if text == "/exit":
            break
        if text == "/reset":
            chat = llm.chat(arguments.system, **options)
            say("The conversation starts over.")
        elif text.startswith("/") and " " not in text:
            say(_COMMANDS + ".")
        elif text:
            _turn(chat, text)


def _turn(chat: Chat, text: str) -> None:
    from satchel.cli.answer import stream, summary

    try:
        generation = chat.send(text)
        try:
            stream(generation)
        except KeyboardInterrupt:
            say("")  # the answer so far stays in the conversation
        say(summary(generation))
    except SatchelError as error:
        say(f"satchel: {error}")
