"""Many small trials, each in a process of its own with bounded time and memory, written down.

A trial that hangs, crashes or takes all memory is then a row of a table and not the end of it, and
a run that was interrupted goes on where it was.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

PAGE = os.sysconf("SC_PAGE_SIZE")


class TrialError(Exception):
    """A trial that ended without a result."""


def run_apart(trial: Callable[[], Any], seconds: float, megabytes: int) -> Any:
    """The result of a function, computed in a child process; TrialError says why there is none.

    The child is forked, so that what is imported here is not imported again.
    """
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(trial, there), daemon=True)
    child.start()
    there.close()
    ends = time.monotonic() + seconds
    try:
        while not here.poll(0.05):
            if time.monotonic() > ends:
                raise TrialError(f"took longer than {seconds:.0f} s")
            if _resident_megabytes(child.pid or 0) > megabytes:
                raise TrialError(f"took more than {megabytes} MB")
        return here.recv()
    except EOFError:
        child.join()
        raise TrialError(f"the process ended with {child.exitcode}") from None
    finally:
        child.kill()
        child.join()


def _child(trial: Callable[[], Any], there: Connection) -> None:
    there.send(trial())


def _resident_megabytes(pid: int) -> float:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE / 1e6
    except (OSError, IndexError):  # it has just ended
        return 0.0


class Journal:
    """Results by key, a line of JSON each, kept in a file as they come."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._results: dict[str, Any] = {}
        if path and path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                key, result = json.loads(line)
                self._results[key] = result

    def __contains__(self, key: str) -> bool:
        return key in self._results

    def __getitem__(self, key: str) -> Any:
        return self._results[key]

    def add(self, key: str, result: Any) -> None:
        self._results[key] = result
        if self._path:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps([key, result]) + "\n")
