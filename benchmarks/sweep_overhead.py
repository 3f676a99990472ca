"""What a sweep adds to a cell, beside running the same commands by hand.

    python benchmarks/sweep_overhead.py --cells 500

A tiny random model in two recipes with prompts of many lengths: the shortest cells that there can
be. The sweep runs all of them; then the commands that its rows tell are run one after another by a
plain loop, exports included. Both are timed as a whole, in turns over two halves, so that a slow
minute of the machine hits both. Processor time, of the processes that are started too, is told
beside it: a busy machine changes it little. What planning takes is there once for all cells.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from satchel.sweeps.experiment import read_experiment
from satchel.sweeps.public import Sweep

RECIPES = ["fp16", "8da4w:32"]
BLOCK = 125  # prompts in an experiment


def experiment(first: int, prompts: int) -> dict[str, Any]:
    lengths = [{"tokens": 8 + first + i, "new_tokens": 4} for i in range(prompts)]
    return {
        "models": ["random:tiny-llama"],
        "recipes": RECIPES,
        "prompts": lengths,
        "export": {"context": 1024},
        "runs": 2,
        "warmup": 1,
    }


def by_hand(rows: list[dict[str, Any]]) -> None:
    """Run all commands that the rows name, each export once."""
    exports = dict.fromkeys(row["export_command"] for row in rows)
    for command in [*exports, *(row["bench_command"] for row in rows)]:
        done = subprocess.run(shlex.split(command), capture_output=True, check=True)
        json.loads(done.stdout)


@dataclass
class Spent:
    """Seconds of the clock, and of processors in this process and those that it started."""

    clock: float = 0.0
    processor: float = 0.0

    @contextmanager
    def counted(self) -> Iterator[None]:
        started, used = time.perf_counter(), sum(os.times()[:4])
        yield
        self.clock += time.perf_counter() - started
        self.processor += sum(os.times()[:4]) - used


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cells", type=int, default=500)
    arguments = parser.parse_args()
    prompts = max(1, arguments.cells // len(RECIPES))
    planned, swept, looped = Spent(), Spent(), Spent()
    cells = 0
    with tempfile.TemporaryDirectory() as folder:
        for first in range(0, prompts, BLOCK):
            given = experiment(first, min(BLOCK, prompts - first))
            # The exports of a block are its own, so that both sides make them again.
            given["export"]["context"] += first
            sweep = Sweep(read_experiment(given), Path(folder) / f"results-{first}")
            with swept.counted():
                with planned.counted():
                    plan = sweep.plan(fetch=True)
                rows = sweep.run(plan=plan)
            assert all(row["status"] == "ok" for row in rows)
            with looped.counted():
                by_hand(rows)
            cells += len(rows)
            print(f"{cells:4} cells")
            for name in ("clock", "processor"):
                ours, plain = getattr(swept, name), getattr(looped, name)
                print(
                    f"     {name:9}: sweep {ours:7.1f} s (planning {getattr(planned, name):4.1f}), "
                    f"by hand {plain:7.1f} s, overhead {ours / plain - 1:+.1%}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
