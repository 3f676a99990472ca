"""satchel verify: is every byte what was written?"""

from __future__ import annotations

import argparse

from satchel.cli.output import ProgressBar, emit, print_json
from satchel.units import megabytes

HELP = "check all structure and every checksum of a program"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a program")


def execute(arguments: argparse.Namespace) -> None:
    from satchel.runtime.program import Program

    program = Program(arguments.file)
    bar = ProgressBar()
    program.verify(lambda done, total: bar("Verifying", done, total))
    bar.close()
    if arguments.json:
        print_json({"ok": True, "file_size_bytes": program.size, "checksum": program.checksum})
    else:
        weights = len(program.weights)
        emit(f"{arguments.file}: {megabytes(program.size)} and {weights} weights are intact")
        emit(f"checksum {program.checksum}")
