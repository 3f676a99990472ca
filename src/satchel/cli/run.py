"""satchel run: one prompt, one answer; or what a model makes of images and arrays."""

from __future__ import annotations

import argparse

from satchel.cli.arguments import add_program_options, positive
from satchel.cli.generation import add_generation_options
from satchel.cli.output import say
from satchel.cli.repeat import add_repeat_options
from satchel.errors import UsageError

HELP = "answer one prompt, or classify images"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="FILE", help="a program, or a model to make one of")
    parser.add_argument(
        "text", metavar="TEXT", nargs="?", help="what to answer, as --prompt; - is standard input"
    )
    prompt = parser.add_mutually_exclusive_group()
    prompt.add_argument("-p", "--prompt", metavar="TEXT", help="what to answer")
    prompt.add_argument(
        "--prompt-file",
        metavar="FILE",
        help="the same from a file, - for stdin, paper:executorch for the one of that paper",
    )
    prompt.add_argument(
        "--input",
        action="append",
        metavar="FILE",
        help="what a model that is no language model runs on: an image, a .npy file, a folder, a "
        "text file of numbers, - for stdin; repeatable",
    )
    parser.add_argument(
        "--image",
        action="append",
        default=[],
        metavar="FILE",
        help="shown with the prompt, to a vision-language model (LLaVA); repeatable",
    )
    parser.add_argument(
        "--raw", action="store_true", help="continue the text as it is, without the chat template"
    )
    add_generation_options(parser)
    add_program_options(parser)
    add_repeat_options(parser)
    group = parser.add_argument_group("what is made of --input")
    group.add_argument("--top", type=positive, default=5, metavar="N", help="the likeliest classes")
    group.add_argument("--annotate", metavar="FILE", help="draw the classes on the image")
    group.add_argument("--output", metavar="FILE.npz", help="save all outputs: scores, or arrays")


def execute(arguments: argparse.Namespace) -> None:
    from satchel.cli.answer import answer
    from satchel.cli.programs import (
        find_program,
        open_llm,
        open_program,
        read_prompt,
        tell_emulated,
        text_input,
    )

    if not arguments.input and (arguments.annotate or arguments.output):
        flag = "annotate" if arguments.annotate else "output"
        raise UsageError(f"--{flag} is for --input", "Leave it out; an answer goes to stdout.")
    if arguments.text is not None:
        if arguments.prompt or arguments.prompt_file or arguments.input:
            raise UsageError("there are two things to answer", "Give TEXT, or an option for it.")
        if arguments.text == "-":
            arguments.prompt_file = "-"
        else:
            arguments.prompt = arguments.text
    if arguments.prompt is None and not arguments.prompt_file and not arguments.input:
        raise UsageError(
            "there is nothing to answer", 'Give a text: satchel run MODEL "Name a river."'
        )
    if arguments.input:
        program = open_program(str(find_program(arguments.model)), arguments)
        if not program.is_language_model:
            from satchel.cli.run_arrays import run_arrays

            run_arrays(program, arguments)
            return
        arguments.prompt_file = text_input(arguments.input, str(program.path))

    prompt = read_prompt(arguments)
    assert prompt is not None
    llm = open_llm(arguments)
    tell_emulated(llm.session.instance.emulated)
    if not arguments.raw and not llm.has_chat_template:
        say("This model has no chat template, so the prompt is continued as plain text (--raw).")
        arguments.raw = True
    answer(llm, prompt, arguments)
