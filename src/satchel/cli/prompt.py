"""Reads what a person says in a conversation: one message, however many lines it has."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from satchel.cli.output import say

_MARK = "> "
_QUOTES = '"""'


class Reader(Protocol):
    def line(self, mark: str) -> str:
        """A line, or several that were pasted; EOFError at the end."""


def open_reader(history: Path, commands: Sequence[str]) -> Reader:
    """The best reader for what standard input is."""
    if not sys.stdin.isatty():
        return PipeReader()
    try:
        return PromptToolkitReader(history, commands)
    except ImportError:
        return TerminalReader()


def read_message(reader: Reader) -> str:
    """A message; between two \"\"\" it may have any lines. KeyboardInterrupt gives it up."""
    text = reader.line(_MARK)
    if not text.lstrip().startswith(_QUOTES):
        return text.strip()
    text = text.lstrip().removeprefix(_QUOTES)
    while not text.rstrip().endswith(_QUOTES):
        try:
            text += "\n" + reader.line(". ")
        except EOFError:
            say(f"The message has no closing {_QUOTES}; it ends here.")
            return text.strip("\n")
    return text.rstrip().removesuffix(_QUOTES).strip("\n")


class PipeReader:
    """A file or a pipe: every line is a message."""

    def line(self, mark: str) -> str:
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line.rstrip("\n")


class TerminalReader:
    """A terminal without prompt_toolkit; lines that were pasted together come together."""

    def __init__(self) -> None:
        import contextlib

        with contextlib.suppress(ImportError):
            import readline  # noqa: F401  line editing and history for input()

    def line(self, mark: str) -> str:
        lines = [input(mark)]
        while _more_is_there():
            lines.append(input())
        return "\n".join(lines)


def _more_is_there() -> bool:
    """Whether standard input has more already, as it has after a paste."""
    if sys.platform == "win32":
        return False
    import select

    return bool(select.select([sys.stdin], [], [], 0.02)[0])


class PromptToolkitReader:
    """Line editing, a history that is kept, completion of commands, pasted lines in one message."""

    def __init__(self, history: Path, commands: Sequence[str]) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.completion import WordCompleter
        from prompt_toolkit.history import FileHistory, History, InMemoryHistory
        from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

        keys = KeyBindings()

        @keys.add("enter")
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.validate_and_handle()

        @keys.add("escape", "enter")
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        kept: History = InMemoryHistory()
        try:
            history.parent.mkdir(parents=True, exist_ok=True)
            history.touch(mode=0o600)
            kept = FileHistory(str(history))
        except OSError as error:
            say(f"What you say is not kept for the next time: {error.strerror} ({history}).")
        words = WordCompleter([*commands], sentence=True)
        self._session: PromptSession[str] = PromptSession(
            history=kept,
            key_bindings=keys,
            multiline=True,
            completer=words,
            complete_while_typing=False,
            prompt_continuation=". ",
        )

    def line(self, mark: str) -> str:
        return self._session.prompt(mark)
