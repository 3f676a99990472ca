"""satchel help: the documents, offline."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from satchel.errors import ConfigError

HELP = "read a document: models, quality, json, …; alone, the list of them"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", nargs="?", metavar="TOPIC", help="what to read about")


def documents() -> dict[str, Path]:
    """The documents by topic: those that were installed, or those of the source tree."""
    package = Path(__file__).parents[1]
    for folder in (package / "docs", package.parents[1] / "docs"):
        found = {path.stem: path for path in sorted(folder.glob("*.md"))}
        if found:
            return found
    raise ConfigError("the documents are not installed", "The source has them in its folder docs.")


def title_of(path: Path) -> str:
    """A document's first heading."""
    found = re.search(r"^# (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return found[1] if found else path.stem


def execute(arguments: argparse.Namespace) -> None:
    from satchel.cli.output import emit, print_json, table

    found = documents()
    if arguments.topic is None:
        titles = {topic: title_of(path) for topic, path in found.items()}
        if arguments.json:
            print_json({"topics": titles})
        else:
            emit(table([[topic, title] for topic, title in titles.items()], ["topic", "about"]))
        return
    if arguments.topic not in found:
        raise ConfigError(
            f"there is no document about {arguments.topic!r}", f"Topics: {', '.join(found)}."
        )
    text = found[arguments.topic].read_text(encoding="utf-8")
    if arguments.json:
        print_json({"topic": arguments.topic, "text": text})
    else:
        emit(text)
