"""satchel completion: what makes a shell complete commands and options."""

from __future__ import annotations

import argparse

from satchel.errors import ConfigError

HELP = 'print what your shell needs to complete commands: eval "$(satchel completion bash)"'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "tcsh"), help="your shell")


def execute(arguments: argparse.Namespace) -> None:
    from satchel.cli.help import documents
    from satchel.cli.main import build_parser
    from satchel.cli.output import emit, print_json

    try:
        import shtab
    except ImportError:
        raise ConfigError("completion is made by the package shtab", "pip install shtab.") from None
    parser = build_parser()
    topic = _argument(parser, "help", "topic")
    topic.choices = list(documents())  # which `help` itself lists when it is given another
    script: str = shtab.complete(parser, arguments.shell)
    if arguments.json:
        print_json({"shell": arguments.shell, "script": script})
    else:
        emit(script)


def _argument(parser: argparse.ArgumentParser, command: str, name: str) -> argparse.Action:
    (commands,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    found: argparse.ArgumentParser = commands.choices[command]
    return next(action for action in found._actions if action.dest == name)
