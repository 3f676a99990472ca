"""satchel completion: what makes a shell complete commands and options."""

from __future__ import annotations

import argparse

from satchel.errors import ConfigError

HELP = 'print what your shell needs to complete commands: eval "$(satchel completion bash)"'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "tcsh"), help="your shell")


def execute(arguments: argparse.Namespace) -> None:
    from satchel.cli.main import build_parser
    from satchel.cli.output import emit, print_json

    try:
        import shtab
    except ImportError:
        raise ConfigError("completion is made by the package shtab", "pip install shtab.") from None
    script: str = shtab.complete(build_parser(), arguments.shell)
    if arguments.json:
        print_json({"shell": arguments.shell, "script": script})
    else:
        emit(script)
