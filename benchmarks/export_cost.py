"""Time and peak memory of an export, and how well --plan predicted them.

    python benchmarks/export_cost.py llama3_2-1b
    python benchmarks/export_cost.py qwen3-4b --once
    python benchmarks/export_cost.py smollm2-135m --source smollm2-135m
    python benchmarks/export_cost.py llama3_2-1b --once --peer --format pte --recipe 8da4w
    python benchmarks/export_cost.py qwen3-4b --once --target coreml

Without --source, a random checkpoint of the model's shapes is written first, and a second one
with twice the layers, to show that peak memory does not grow with depth. With --peer, ExecuTorch
exports the same checkpoint with its own tools after it, in this environment. Seconds are of the
clock and, beside them, of all cores together, which other work on the machine changes less.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from satchel.sources.random_weights import write_checkpoint
from satchel.sources.shapes import SHAPES


def satchel(*arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "satchel", *arguments, "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    document: dict[str, Any] = json.loads(done.stdout)
    return document


class Stopwatch:
    """Seconds since it was made: of the clock, and of the cores in processes that have ended."""

    def __init__(self) -> None:
        self._started, self._used = time.perf_counter(), self._cores()

    @staticmethod
    def _cores() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    def __str__(self) -> str:
        seconds = time.perf_counter() - self._started
        return f"{seconds:7.1f} s ({self._cores() - self._used:7.1f} of cores)"


def measure(label: str, source: str, folder: Path, extra: list[str]) -> int:
    made = folder / f"{label}-made"
    plan = satchel("export", source, "-o", f"{made}/", "--plan", *extra)["plan"]
    watch = Stopwatch()
    result = satchel("export", source, "-o", f"{made}/", *extra)
    taken = str(watch)
    size, peak = result["file_size_bytes"], result["peak_rss_bytes"]
    print(
        f"{label:24} {taken}  peak {peak / 1e6:7.1f} MB "
        f"(plan {plan['peak_memory_bytes'] / peak - 1:+.1%})  file {size / 1e6:8.1f} MB "
        f"(plan {plan['file_size_bytes'] / size - 1:+.2%})",
        flush=True,
    )
    shutil.rmtree(made)
    return int(peak)


def measure_peer(checkpoint: Path, folder: Path) -> None:
    """ExecuTorch's own export of the same weights: its time, and the peak of its processes."""
    script = Path(__file__).parent / "peers" / "executorch_peer.py"
    out = folder / "peer"
    command = [sys.executable, str(script), "prepare", str(checkpoint), str(out), "--json"]
    watch = Stopwatch()
    prepared = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    taken = str(watch)
    size = sum(path.stat().st_size for path in out.rglob("*.pte"))
    print(
        f"{'executorch itself':24} {taken}  peak {prepared['peak_rss_bytes'] / 1e6:7.1f} MB "
        f"file {size / 1e6:8.1f} MB",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=sorted(SHAPES))
    parser.add_argument("--source", help="export this instead of random weights")
    parser.add_argument("--folder", type=Path, help="where to write (default: a temporary folder)")
    parser.add_argument("--once", action="store_true", help="not again with twice the layers")
    parser.add_argument("--peer", action="store_true", help="ExecuTorch's own export after it")
    arguments, extra = parser.parse_known_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = Path(name)
        if arguments.source:
            measure(arguments.name, arguments.source, folder, extra)
            if arguments.peer:
                measure_peer(Path(arguments.source), folder)
            return
        layers = SHAPES[arguments.name]["num_hidden_layers"]
        peaks = []
        for factor in (1,) if arguments.once else (1, 2):
            label = f"{arguments.name}-{layers * factor}-layers"
            checkpoint = folder / label
            write_checkpoint(arguments.name, checkpoint, layers * factor)
            peaks.append(measure(label, str(checkpoint), folder, extra))
            if arguments.peer and factor == 1:
                measure_peer(checkpoint, folder)
            shutil.rmtree(checkpoint)
        if len(peaks) == 2:
            print(f"twice the layers: {peaks[1] / peaks[0] - 1:+.1%} peak memory")


if __name__ == "__main__":
    main()
