"""satchel pull: fetch a model's weights."""

from __future__ import annotations

import argparse

from satchel.cli.output import emit, print_json
from satchel.progress import ProgressBar

HELP = "fetch a model's weights into the cache"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="a name of `satchel models`, or hf:ORG/REPO")
    parser.add_argument("--force", action="store_true", help="fetch it again")


def execute(arguments: argparse.Namespace) -> None:
    from satchel.sources import pull

    bar = ProgressBar()
    path = pull(arguments.name, bar, arguments.force)
    bar.close()
    if arguments.json:
        print_json({"name": arguments.name, "path": str(path)})
    else:
        emit(path)
