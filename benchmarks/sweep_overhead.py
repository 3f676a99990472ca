"""What a sweep adds to a cell, beside running the same commands by hand.

    python benchmarks/sweep_overhead.py --cells 500

A tiny random model in two recipes with prompts of many lengths: the shortest cells that there can
be. After each piece of work that the sweep has done, the command that its record tells is run as a
person would run it, and each is timed: the two take turns within a second, so that a slow minute
of the machine hits both. Processor time, of the processes that are started too, is told beside the
clock: a busy machine changes it little. What planning and the last table take is there once for
all cells, and is counted.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from satchel.sweeps import jobs
from satchel.sweeps.devices import LOCAL
from satchel.sweeps.experiment import read_experiment
from satchel.sweeps.jobs import Job, Measurement, Record
from satchel.sweeps.public import Sweep

RECIPES = ["fp16", "8da4w:32"]
REPORT_EVERY = 50  # cells


def experiment(prompts: int) -> dict[str, Any]:
    return {
        "models": ["random:tiny-llama"],
        "recipes": RECIPES,
        "prompts": [{"tokens": 8 + number, "new_tokens": 4} for number in range(prompts)],
        "export": {"context": 1024},
        "runs": 2,
        "warmup": 1,
    }


def by_hand(command: str) -> None:
    done = subprocess.run(shlex.split(command), capture_output=True, check=True)
    json.loads(done.stdout)


@dataclass
class Spent:
    """Seconds of the clock, and of processors in this process and those that it started."""

    clock: float = 0.0
    processor: float = 0.0
    cells: list[tuple[float, float]] = field(default_factory=list)

    def add(self, clock: float, processor: float, cell: bool = False) -> None:
        self.clock += clock
        self.processor += processor
        if cell:
            self.cells.append((clock, processor))


class InTurns:
    """Watches a sweep, and does by hand what it has just done."""

    def __init__(self) -> None:
        self.swept, self.looped, self.planned = Spent(), Spent(), Spent()
        self.since = self.now()

    def now(self) -> tuple[float, float]:
        return time.perf_counter(), sum(os.times()[:4])

    def lap(self) -> tuple[float, float]:
        """What has passed since the last time."""
        before, self.since = self.since, self.now()
        return self.since[0] - before[0], self.since[1] - before[1]

    def begun(self, job: Job) -> None:
        pass

    def done(self, job: Job, record: Record) -> None:
        cell = isinstance(job, Measurement)
        self.swept.add(*self.lap(), cell)
        assert record["ok"], record
        by_hand(record["command"])
        self.looped.add(*self.lap(), cell)
        if LOCAL in jobs._last_bandwidth:
            # A sweep alone would go on at once, when what it knows of the memory is not old.
            jobs._last_bandwidth[LOCAL] = (time.monotonic(), jobs._last_bandwidth[LOCAL][1])
        if cell and len(self.swept.cells) % REPORT_EVERY == 0:
            self.tell()
            self.lap()

    def tell(self) -> None:
        print(f"{len(self.swept.cells):4} cells")
        for which, name in enumerate(("clock", "processor")):
            ours, plain = getattr(self.swept, name), getattr(self.looped, name)
            once = getattr(self.planned, name)
            pairs = zip(self.swept.cells, self.looped.cells, strict=True)
            usual = statistics.median(a[which] / b[which] for a, b in pairs)
            print(
                f"     {name:9}: sweep {ours:7.1f} s (planning {once:4.1f}), by hand {plain:7.1f} "
                f"s, overhead {ours / plain - 1:+.1%}; of a cell, the median: {usual - 1:+.1%}",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cells", type=int, default=500)
    arguments = parser.parse_args()
    prompts = max(1, arguments.cells // len(RECIPES))
    turns = InTurns()
    with tempfile.TemporaryDirectory() as folder:
        sweep = Sweep(read_experiment(experiment(prompts)), Path(folder) / "results")
        turns.lap()
        plan = sweep.plan(fetch=True)
        spent = turns.lap()
        turns.planned.add(*spent)
        turns.swept.add(*spent)
        rows = sweep.run(plan=plan, watcher=turns)
        turns.swept.add(*turns.lap())
        assert all(row["status"] == "ok" for row in rows)
    print("all of it, with the tables that are written at the end:")
    turns.tell()


if __name__ == "__main__":
    main()
