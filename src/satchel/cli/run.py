"""satchel run: one prompt, one answer."""

from __future__ import annotations

import argparse

from satchel.cli.arguments import add_generation_options, add_program_options
from satchel.cli.output import say

HELP = "answer one prompt"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="FILE", help="a program, or a model to make one of")
    prompt = parser.add_mutually_exclusive_group(required=True)
    prompt.add_argument("--prompt", metavar="TEXT", help="what to answer")
    prompt.add_argument("--prompt-file", metavar="FILE", help="the same from a file, - for stdin")
    parser.add_argument(
        "--raw", action="store_true", help="continue the text as it is, without the chat template"
    )
    add_generation_options(parser)
    add_program_options(parser)


def execute(arguments: argparse.Namespace) -> None:
    from satchel.cli.answer import answer
    from satchel.cli.programs import open_llm, read_prompt

    prompt = read_prompt(arguments)
    assert prompt is not None
    llm = open_llm(arguments)
    if not arguments.raw and not llm.has_chat_template:
        say("This model has no chat template, so the prompt is continued as plain text (--raw).")
        arguments.raw = True
    answer(llm, prompt, arguments)
