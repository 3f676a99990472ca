"""Bars that tell how far something is: on a terminal, in a notebook, or as a few plain lines."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from satchel.cli.output import shown
from satchel.units import megabytes

Progress = Callable[[str, int, int | None], None]

_LINE_STEP = 0.25


class ProgressBar:
    """Called with a label, how much is done, and how much there is (None: not known).

    Amounts are bytes unless the label says what is counted: ``Calibrating, layers``.

    >>> bar = ProgressBar()
    >>> bar("Packing", 10, 100); bar("Calibrating, layers", 1, 12); bar.close()
    """

    def __init__(self, amount: Callable[[float], str] | None = None) -> None:
        self._amount = amount
        self._label = ""
        self._told = 0.0
        self._bar: Any = None
        self._done = False
        self._live = _in_notebook() or _on_terminal()

    def __call__(self, label: str, done: int, total: int | None) -> None:
        finished = total is not None and done >= total
        if label != self._label:
            self.close()
            self._label, self._told, self._done = label, 0.0, False
            self._open(label, total)
        if self._done:
            return  # a bar that is full stays as it is
        if self._bar is not None:
            self._bar.total = total
            self._bar.n = done
            self._bar.refresh() if finished else self._bar.update(0)
        elif total and (finished or done / total >= self._told + _LINE_STEP):
            self._told = min(1.0, done / total)
            _print(f"{self._name}: {self._told:.0%}")
        if finished:
            self._done = True
            self.close()

    @property
    def _name(self) -> str:
        return self._label.rpartition(", ")[0] or self._label

    def _open(self, label: str, total: int | None) -> None:
        counted = label.rpartition(", ")[2] if ", " in label else ""
        if self._live:
            from tqdm.auto import tqdm

            bytes_ = not counted and self._amount is None
            self._bar = tqdm(
                desc=shown(self._name),
                total=total,
                unit="B" if bytes_ else f" {counted}",
                unit_scale=bytes_,
                leave=True,
                nrows=20,  # a terminal may not know its size
                ncols=None if _in_notebook() else shutil.get_terminal_size().columns - 1,
                mininterval=0.1,
                miniters=0,
                bar_format=None if total else "{desc}: {n_fmt}{unit} [{elapsed}]",
                file=sys.stderr,
            )
        else:
            how_much = "" if total is None else f": {self._write(total, counted)}"
            _print(f"{self._name}{how_much} …")

    def _write(self, amount: float, counted: str) -> str:
        if self._amount is not None:
            return self._amount(amount)
        return f"{int(amount):,} {counted}" if counted else megabytes(amount)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
        self._bar = None


def usual_progress() -> Progress:
    """A bar in a notebook, where nobody else would show one; else silence."""
    return ProgressBar() if _in_notebook() else silent


def watched_progress() -> Progress:
    """A bar where someone looks: on a terminal or in a notebook; else silence."""
    return ProgressBar() if _in_notebook() or _on_terminal() else silent


def silent(label: str, done: int, total: int | None) -> None:
    """Tell nobody."""


def _in_notebook() -> bool:
    shell = sys.modules.get("IPython")
    running = shell.get_ipython() if shell is not None else None
    return type(running).__name__ == "ZMQInteractiveShell"


def _on_terminal() -> bool:
    return sys.stderr is not None and not sys.stderr.closed and sys.stderr.isatty()


def _print(text: str) -> None:
    with suppress(OSError, ValueError):  # nobody may be there to read it any more
        print(shown(text), file=sys.stderr, flush=True)
