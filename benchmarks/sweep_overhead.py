"""What a sweep adds to a cell, beside running the same commands by hand.

    python benchmarks/sweep_overhead.py --cells 500

A tiny random model in two recipes with prompts of many lengths: the shortest cells that there can
be. The sweep runs all of them; then the commands that its rows tell are run one after another by a
plain loop, exports included. Both are timed as a whole, in turns over two halves, so that a slow
minute of the machine hits both. The processor time of the sweep's own process is told too: a busy
machine does not change it.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import tempfile
import time
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


def by_hand(rows: list[dict[str, Any]]) -> float:
    """Seconds of all commands that the rows name, each export once."""
    exports = dict.fromkeys(row["export_command"] for row in rows)
    commands = [*exports, *(row["bench_command"] for row in rows)]
    started = time.perf_counter()
    for command in commands:
        done = subprocess.run(shlex.split(command), capture_output=True, check=True)
        json.loads(done.stdout)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cells", type=int, default=500)
    arguments = parser.parse_args()
    prompts = max(1, arguments.cells // len(RECIPES))
    swept = looped = own = 0.0
    cells = 0
    with tempfile.TemporaryDirectory() as folder:
        for first in range(0, prompts, BLOCK):
            given = experiment(first, min(BLOCK, prompts - first))
            # The exports of a block are its own, so that both sides make them again.
            given["export"]["context"] += first
            sweep = Sweep(read_experiment(given), Path(folder) / f"results-{first}")
            started, used = time.perf_counter(), time.process_time()
            rows = sweep.run()
            swept += time.perf_counter() - started
            own += time.process_time() - used
            assert all(row["status"] == "ok" for row in rows)
            looped += by_hand(rows)
            cells += len(rows)
            print(
                f"{cells:4} cells: sweep {swept:7.1f} s, by hand {looped:7.1f} s, "
                f"overhead {swept / looped - 1:+.1%}, own time {own / cells * 1e3:.0f} ms a cell",
                flush=True,
            )


if __name__ == "__main__":
    main()
