"""satchel models: the models that have a name."""

from __future__ import annotations

import argparse

from satchel.cli.output import count, emit, print_json, table

HELP = "list the models that have a name"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("filter", nargs="?", default="", help="only names that contain this")


def execute(arguments: argparse.Namespace) -> None:
    from satchel.sources.catalog import CATALOG

    entries = [e for e in CATALOG.values() if arguments.filter in e.name]
    if arguments.json:
        listed = [
            {
                "name": e.name,
                "architecture": e.architecture,
                "parameters": e.parameters,
                "context": e.context,
                "description": e.description,
                "source": str(e.source),
            }
            for e in entries
        ]
        print_json({"models": listed})
        return
    rows = [[e.name, e.architecture, count(e.parameters), str(e.source)] for e in entries]
    emit(table(rows, ["name", "architecture", "parameters", "from"]))
