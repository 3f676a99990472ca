"""The command line: one file per command, found by its name."""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import traceback
import warnings
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import Any, NoReturn, TextIO

from satchel.cli.output import print_json, say
from satchel.errors import SatchelError, UsageError
from satchel.remarks import Remark

COMMANDS = (
    "export",
    "run",
    "chat",
    "serve",
    "transcribe",
    "embed",
    "bench",
    "device",
    "eval",
    "report",
    "sweep",
    "inspect",
    "verify",
    "sign",
    "models",
    "pull",
    "cache",
    "doctor",
    "help",
    "completion",
)

_FLAG = re.compile(r"\A--[a-z][a-z0-9_-]*(?=\Z|=)")

_EPILOG = """\
examples:
  satchel chat smollm2-135m                          talk to a small model, offline
  satchel export ./Llama-3.2-1B -o llama.satchel     pack a Hugging Face folder
  satchel run llama.satchel "Name a river."          one answer
  satchel bench llama.satchel                        prefill and decode speed
A model is a name that `satchel models` lists, hf:ORG/REPO, or the path of a checkpoint."""


def _module(command: str) -> ModuleType:
    return import_module(f"satchel.cli.{command}")


def build_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="satchel",
        description="Pack a model once and carry it to any chip.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and stop")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in COMMANDS:
        module = _module(name)
        sub = commands.add_parser(
            name,
            help=module.HELP,
            description=module.HELP[0].upper() + module.HELP[1:] + ".",
            formatter_class=_Help,
        )
        module.add_arguments(sub)
        sub.add_argument(
            "--json",
            action="store_true",
            help="print one JSON object (satchel help json) and nothing else",
        )
    return parser


class _Parser(argparse.ArgumentParser):
    """Says what is wrong on one line; the options are what --help is for."""

    def error(self, message: str) -> NoReturn:
        self.exit(
            2, f"{self.prog}: {message.rstrip('.')}. {self.prog} --help shows how it is used.\n"
        )


class _Help(argparse.ArgumentDefaultsHelpFormatter):
    """Shows a default only where there is one to speak of."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        default = action.default
        if isinstance(default, bool) or default in (None, "", [], ()):
            return action.help
        if isinstance(default, (list, tuple)):
            return f"{action.help} (default: {','.join(map(str, default))})"
        if isinstance(default, float):
            return f"{action.help} (default: {default:g})"
        return super()._get_help_string(action)


class _Version(argparse.Action):
    """Looked up only when asked for: reading package metadata takes a while."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        from importlib.metadata import version

        print(f"{parser.prog} {version('satchel')}")
        parser.exit()


def _say_remark(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Remarks are for people; all other warnings are libraries' talk to developers."""
    if issubclass(category, Remark):
        say(str(message))
    elif os.environ.get("SATCHEL_DEBUG"):
        say(f"{category.__name__}: {message}")


def _terminate(_signal: int, _frame: Any) -> NoReturn:
    raise KeyboardInterrupt


def _interrupted() -> int:
    say("\nsatchel: interrupted; nothing half-done was left behind")
    return 130


def _fail(arguments: argparse.Namespace, kind: str, message: str, advice: str) -> int:
    if arguments.json:
        print_json({"error": {"type": kind, "message": message, "advice": advice}})
    line = f"{message}. {advice}" if advice else message
    say("satchel: " + " ".join(line.split()))
    return 1


def parse_arguments(words: Sequence[str]) -> argparse.Namespace:
    """Flags may be spelt with underscores, and exports may be told ``++group.key=value``."""
    words = [_FLAG.sub(_with_dashes, word) for word in words]
    overrides: list[str] = []
    if words[:1] == ["export"]:
        from satchel.exporter.executorch_config import split_overrides

        words, overrides = split_overrides(words)
    parser = build_parser()
    arguments, rest = parser.parse_known_args(words)
    if arguments.command == "export":
        from satchel.exporter.executorch_config import why_no_override

        for wrong in filter(None, map(why_no_override, [arguments.source or "", *rest])):
            parser.error(wrong)
    # argparse gives FILE and TEXT their words together, and so loses a TEXT behind an option.
    if arguments.command == "run" and arguments.text is None and len(rest) == 1:
        arguments.text = rest.pop() if not rest[0].startswith("-") else None
    if arguments.command == "transcribe":  # nor AUDIO behind one
        behind = [word for word in rest if word == "-" or not word.startswith("-")]
        arguments.audio += behind
        rest = [word for word in rest if word not in behind]
    if arguments.command == "device" and arguments.action == "run":
        arguments.for_runner, rest = rest, []
    if rest:
        from satchel.cli.guide_flags import instead_of

        advice = instead_of(rest, arguments.command)
        parser.error(f"unrecognized arguments: {' '.join(rest)}" + (advice and f"; {advice}"))
    arguments.overrides_of_groups = overrides
    return arguments


def _with_dashes(flag: re.Match[str]) -> str:
    return flag[0].replace("_", "-")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; 0 is success, 1 a failure with its reason, 2 wrong usage."""
    try:  # loads what all commands are made of, which takes a second where the disk is slow
        arguments = parse_arguments(sys.argv[1:] if argv is None else argv)
    except KeyboardInterrupt:
        return _interrupted()
    if sys.stdin is None:  # closed (`satchel chat <&-`): as one that has nothing more to say
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115
    with warnings.catch_warnings():
        warnings.simplefilter("always", Remark)
        warnings.showwarning = _say_remark
        return _run(arguments)


def _run(arguments: argparse.Namespace) -> int:
    # A killed export cleans up as an interrupted one does.
    signal.signal(signal.SIGTERM, _terminate)
    try:
        return int(_module(arguments.command).execute(arguments) or 0)
    except UsageError as error:
        _fail(arguments, type(error).__name__, error.message, error.advice)
        return 2
    except SatchelError as error:
        return _fail(arguments, type(error).__name__, error.message, error.advice)
    except KeyboardInterrupt:
        return _interrupted()
    except BrokenPipeError:
        # The reader went away (`satchel … | head`): not our failure, but nothing more to do.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        return _fail(arguments, "OSError", f"{place}{error.strerror or error}", "")
    except MemoryError:
        return _fail(
            arguments, "MemoryError", "there is not enough memory", "Close other programs."
        )
    except Exception as error:
        if os.environ.get("SATCHEL_DEBUG"):
            traceback.print_exc()
        advice = "This is a bug in Satchel; SATCHEL_DEBUG=1 shows where."
        return _fail(arguments, type(error).__name__, str(error) or type(error).__name__, advice)


if __name__ == "__main__":
    sys.exit(main())
