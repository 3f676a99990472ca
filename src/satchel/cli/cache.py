"""satchel cache: what is kept on this machine, how large it is, and how to be rid of it."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from satchel.cli.output import emit, print_json, table
from satchel.units import megabytes

if TYPE_CHECKING:
    from satchel.sources.cache_files import CachedFile

HELP = "list what is in the cache, and delete from it"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action",
        nargs="?",
        default="list",
        choices=("list", "delete", "clean"),
        help="list it, delete some or all of it, or clean: only what newer exports replaced and "
        "what was left half-done",
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="what to delete, as listed; or all"
    )


def execute(arguments: argparse.Namespace) -> None:
    from satchel.errors import UsageError
    from satchel.sources.cache import cache_folder
    from satchel.sources.cache_files import cached_files, delete_files

    files = cached_files()
    if arguments.action == "list" and arguments.names:
        raise UsageError("a list takes no names", "Did you mean satchel cache delete NAME?")
    if arguments.action == "delete":
        chosen = _chosen(files, arguments.names)
    else:
        chosen = [f for f in files if f.replaced] if arguments.action == "clean" else []
    delete_files(chosen)
    left = [f for f in files if f not in chosen]
    if arguments.json:
        print_json(
            {
                "folder": str(cache_folder()),
                "size_bytes": sum(f.size for f in left),
                "entries": [f.to_dict() for f in left],
                "deleted": [f.to_dict() for f in chosen],
            }
        )
        return
    if arguments.action != "list":
        freed = megabytes(sum(f.size for f in chosen))
        emit(f"{len(chosen)} deleted, {freed} freed; {megabytes(sum(f.size for f in left))} left")
        return
    rows = [
        [f.name, f.kind, megabytes(f.size), f.used.strftime("%Y-%m-%d"), _remark(f)] for f in left
    ]
    if rows:
        emit(table(rows, ["name", "what", "size", "from", ""]))
    emit(f"{megabytes(sum(f.size for f in left))} in {cache_folder()}")


def _remark(file: CachedFile) -> str:
    return "replaced by a newer one" if file.replaced else ""


def _chosen(files: list[CachedFile], names: list[str]) -> list[CachedFile]:
    from satchel.errors import ConfigError, UsageError

    if not names:
        raise UsageError("nothing was named", "Give names as satchel cache lists them, or all.")
    if names == ["all"]:
        return files
    unknown = [name for name in names if not any(f.name == name for f in files)]
    if unknown:
        raise ConfigError(f"{unknown[0]!r} is not in the cache", "satchel cache lists what is.")
    return [f for f in files if f.name in names]
