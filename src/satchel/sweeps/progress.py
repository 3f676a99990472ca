"""How far a sweep is, and how long the rest will take."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from satchel.sweeps.jobs import Job, Record, name_of
from satchel.sweeps.planning import Plan


class Watcher(Protocol):
    """Someone who is told what happens."""

    def begun(self, job: Job) -> None: ...

    def done(self, job: Job, record: Record) -> None: ...


class Progress:
    """Counts jobs, and learns from those that are done how far their plans are off."""

    def __init__(self, plan: Plan, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock, self.started = clock, clock()
        self.planned: dict[str, float] = {}
        for cell in plan.possible:
            if cell.export:
                self.planned[name_of(cell.export)] = cell.export_seconds
            if cell.quality:
                self.planned[name_of(cell.quality)] = 5.0
            for one in cell.measurements:
                self.planned[name_of(one)] = cell.seconds / len(cell.measurements)
        self.taken: dict[str, float] = {}
        self.left = dict(self.planned)
        self.failed = 0

    def skip(self, name: str) -> None:
        """Done by an earlier run, or not needed any more."""
        self.left.pop(name, None)

    def finish(self, name: str, record: dict[str, Any]) -> None:
        self.left.pop(name, None)
        self.failed += not record["ok"]
        if record["ok"]:
            self.taken[name] = record["seconds"]

    @property
    def total(self) -> int:
        return len(self.planned)

    @property
    def finished(self) -> int:
        return self.total - len(self.left)

    def seconds_left(self) -> float:
        """By kind of work: what is planned times how wrong plans of that kind were so far."""
        return sum(
            self._correction(kind) * sum(s for n, s in self.left.items() if n.startswith(kind))
            for kind in ("export", "quality", "cell")
        )

    def _correction(self, kind: str) -> float:
        done = {n: s for n, s in self.taken.items() if n.startswith(kind)}
        planned = sum(self.planned[name] for name in done)
        return sum(done.values()) / planned if planned else 1.0


def duration(seconds: float) -> str:
    """
    >>> duration(8), duration(95), duration(7380)
    ('8 s', '1 min 35 s', '2 h 3 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
