"""Satchel and its peers on vision models, in turns on the same machine.

    python benchmarks/peers/install.py vision
    python benchmarks/vision_side_by_side.py --rounds 3

Models are torchvision's with random weights, one image at a time. Satchel runs with this
interpreter, which needs ``satchel[torch]`` and torchvision; every other measurement is a process in
the peer's own environment. Rounds go over all contenders in turn, so that a slow minute of the
machine hits all of them; the table has the medians over the rounds, and each contender's spread.
On a machine that is busy with other work, ``--cpu-time --threads 1`` compares what a call costs the
processor, which waiting for it does not change.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from peers.install import default_folder, environments_folder, interpreter
from peers.vision_models import MODELS

from satchel.sweeps.peers import VISION
from satchel.sweeps.processes import Failed, run_json

HERE = Path(__file__).resolve().parent
PEERS = {"satchel": "Satchel", **{name: peer.label for name, peer in VISION.items()}}
PRECISIONS = ("int8", "fp32")
# Those that run in another's environment, or with another's files.
ENVIRONMENTS = {name: peer.environment for name, peer in VISION.items() if peer.environment}
SAME_FILES = {name: peer.files for name, peer in VISION.items() if peer.files}
VARIABLES = {name: dict(peer.variables) for name, peer in VISION.items() if peer.variables}
MEASURED = ("median_ms", "fastest_ms", "p95_ms", "cpu_ms")


@dataclass
class Result:
    """One contender with one model in one precision."""

    peer: str
    model: str
    precision: str
    version: str = ""
    problem: str = ""  # why there are no runs
    runs: list[dict[str, float]] = field(default_factory=list)

    def median_of(self, measure: str) -> float:
        return statistics.median(run[measure] for run in self.runs)

    def cell(self, measure: str, best: float) -> str:
        """The median, the range over the rounds, and how much slower than the best it is."""
        if not self.runs:
            return f"– ({self.problem})"
        rounds = [run[measure] for run in self.runs]
        middle = self.median_of(measure)
        return f"{middle:.2f} ({min(rounds):.2f}–{max(rounds):.2f}), ×{middle / best:.2f}"


@dataclass(frozen=True)
class Settings:
    work: Path
    environments: Path
    threads: int
    runs: int
    fresh: bool

    def command(self, peer: str) -> list[str]:
        script = str(HERE / "peers" / f"vision_{SAME_FILES.get(peer, peer)}.py")
        if peer == "satchel":
            return [sys.executable, script]
        return [str(interpreter(ENVIRONMENTS.get(peer, peer), self.environments)), script]

    def folder(self, result: Result) -> Path:
        peer = SAME_FILES.get(result.peer, result.peer)
        return self.work / result.model / f"{peer}-{result.precision}"

    def log(self, result: Result, verb: str) -> Path:
        name = f"{result.model}-{result.peer}-{result.precision}-{verb}.log"
        return self.work / "logs" / name


def has_amx() -> bool:
    from satchel._native import kernels

    return kernels.amx_status() == "available"


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def prepare(result: Result, settings: Settings) -> None:
    folder = settings.folder(result)
    done = folder / "prepared"
    if done.exists() and not settings.fresh:
        return
    shutil.rmtree(folder, ignore_errors=True)
    say(f"{result.model}: preparing {PEERS[result.peer]} {result.precision}")
    source = settings.work / result.model / "onnxruntime-fp32"
    command = [*settings.command(result.peer), "prepare", result.model, result.precision]
    run_json([*command, str(source), str(folder)], settings.log(result, "prepare"), limit_s=1800)
    done.touch()


def bench(result: Result, settings: Settings) -> None:
    command = [*settings.command(result.peer), "bench", str(settings.folder(result))]
    command += [f"--threads={settings.threads}", f"--runs={settings.runs}"]
    # Thread pools that are not asked otherwise take this many.
    environment = {"OMP_NUM_THREADS": str(settings.threads), **VARIABLES.get(result.peer, {})}
    document = run_json(command, settings.log(result, "bench"), environment, limit_s=1800)
    result.version = document["version"]
    result.runs.append({name: document[name] for name in MEASURED})
    say(f"  {PEERS[result.peer]:20} {result.precision} {document['median_ms']:8.2f} ms")


def attempt(step: Any, result: Result, settings: Settings) -> None:
    if result.problem:
        return
    try:
        step(result, settings)
    except Failed as reason:
        result.problem = str(reason)
        say(f"  {PEERS[result.peer]} {result.precision}: {reason}")


def run_model(model: str, peers: list[str], settings: Settings, rounds: int) -> list[Result]:
    # ONNX Runtime's fp32 comes first: its file is what others start from.
    order = sorted(peers, key=lambda peer: peer != "onnxruntime")
    results = [Result(peer, model, p) for p in reversed(PRECISIONS) for peer in order]
    for result in results:
        attempt(prepare, result, settings)
    for number in range(rounds):
        say(f"{model}: round {number + 1} of {rounds}")
        turn = number % len(results)  # each round starts with another contender
        for result in results[turn:] + results[:turn]:
            attempt(bench, result, settings)
    return results


def markdown(results: list[Result], settings: Settings, measure: str) -> str:
    """A table for each precision: medians in ms, their range, and the ratio to the best."""
    models = list(dict.fromkeys(r.model for r in results))
    what = "ms of the processor" if measure == "cpu_ms" else "ms"
    lines = [f"{settings.threads} threads, one image, {what}: median (range of rounds), × the best"]
    for precision in PRECISIONS:
        lines += [
            "",
            f"| {precision} | " + " | ".join(models) + " |",
            "|---" * (len(models) + 1) + "|",
        ]
        rows: dict[str, list[str]] = {}
        for model in models:
            these = [r for r in results if (r.model, r.precision) == (model, precision)]
            best = min((r.median_of(measure) for r in these if r.runs), default=1.0)
            for r in sorted(these, key=lambda r: list(PEERS).index(r.peer)):
                rows.setdefault(PEERS[r.peer], []).append(r.cell(measure, best))
        lines += [f"| {name} | " + " | ".join(cells) + " |" for name, cells in rows.items()]
    versions = sorted({r.version for r in results if r.version})
    return "\n".join([*lines, "", "Versions: " + "; ".join(versions)])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    usual = [peer for peer in PEERS if peer not in SAME_FILES or has_amx()]
    parser.add_argument("--peers", nargs="+", default=usual, choices=PEERS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--runs", type=int, default=20, help="in each process, after a warm-up")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    folder = default_folder()
    parser.add_argument("--work", type=Path, default=folder / "vision", help="for all files")
    parser.add_argument("--environments", type=Path, default=environments_folder())
    parser.add_argument("--fresh", action="store_true", help="prepare again what is there")
    parser.add_argument(
        "--cpu-time", action="store_true", help="show what the fastest call of a round cost the CPU"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    a = parser.parse_args()
    settings = Settings(a.work.resolve(), a.environments.resolve(), a.threads, a.runs, a.fresh)
    settings.work.mkdir(parents=True, exist_ok=True)
    results: list[Result] = []
    for model in a.models:
        results += run_model(model, a.peers, settings, a.rounds)
        # After each model, so that an interrupted run keeps what it has.
        document = {"threads": a.threads, "results": [asdict(r) for r in results]}
        (settings.work / "results.json").write_text(json.dumps(document, indent=1))
    measure = "cpu_ms" if a.cpu_time else "median_ms"
    print(json.dumps(document) if a.json else markdown(results, settings, measure))


if __name__ == "__main__":
    main()
