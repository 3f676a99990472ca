"""What the vision peers share: the verbs prepare and bench, timing, and the JSON they print."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from verbs import peak_rss_bytes, stdout_to_stderr
from vision_models import MODELS

Run = Callable[[], Any]
Prepare = Callable[[str, str, Path, Path], None]  # model, precision, folder of the ONNX file, out
Load = Callable[[Path, int], tuple[str, Run]]  # what prepare wrote, threads: version and a call


def measure(run: Run, runs: int, warmup: int) -> dict[str, Any]:
    """Milliseconds of a call; ``cpu_ms`` is what it cost the processor, in all threads."""
    for _ in range(warmup):
        run()
    times, processor = [], []
    for _ in range(runs):
        started, used = time.perf_counter(), time.process_time()
        run()
        processor.append(1000 * (time.process_time() - used))
        times.append(1000 * (time.perf_counter() - started))
    samples = {"latency_s": [each / 1000 for each in times]}
    times.sort()
    return {
        "samples": samples,
        "cpu_ms": min(processor),
        "median_ms": statistics.median(times),
        "fastest_ms": times[0],
        "p95_ms": times[min(len(times) - 1, round(0.95 * len(times)))],
    }


def main(about: str, prepare: Prepare, load: Load) -> None:
    """The command line of a peer's script."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    verb = verbs.add_parser("prepare", help="convert a model for this peer")
    verb.add_argument("model", choices=MODELS)
    verb.add_argument("precision", choices=("fp32", "int8"))
    verb.add_argument("source", type=Path, help="the folder with model.onnx")
    verb.add_argument("out", type=Path, help="the folder to write to")
    verb = verbs.add_parser("bench", help="measure what prepare has written")
    verb.add_argument("folder", type=Path, help="the folder that prepare wrote")
    verb.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    verb.add_argument("--runs", type=int, default=20)
    verb.add_argument("--warmup", type=int, default=3)
    arguments = parser.parse_args()
    with stdout_to_stderr():
        if arguments.verb == "prepare":
            arguments.out.mkdir(parents=True, exist_ok=True)
            paths = arguments.source.resolve(), arguments.out.resolve()
            prepare(arguments.model, arguments.precision, *paths)
            document: dict[str, Any] = {"folder": str(arguments.out)}
        else:
            version, run = load(arguments.folder.resolve(), arguments.threads)
            document = {"version": version, "threads": arguments.threads}
            document |= measure(run, arguments.runs, arguments.warmup)
            document["peak_rss_bytes"] = peak_rss_bytes()
    print(json.dumps(document))
