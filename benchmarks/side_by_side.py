"""Satchel and its peers in turns on the same machine, and how close each is to the limits.

    python benchmarks/peers/install.py all
    python benchmarks/side_by_side.py --models smollm2-135m llama3_2-1b --rounds 3

Every measurement is a process of its own, in the peer's own environment, with the same number of
threads. Rounds go over all contenders in turn, so that a slow minute of the machine hits all of
them; the table has the medians over the rounds. Weights are random, of the real shapes, except
SmolLM2's, which llama.cpp and Satchel read from the published file.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

import contenders
from contenders import PEERS, Contender, Settings
from peers.install import default_folder, environments_folder

from report import Result, markdown
from satchel import _native
from satchel.sources.shapes import SHAPES
from satchel.sweeps.processes import Failed, run_json

MODELS = ["smollm2-135m", "qwen3-0_6b", "llama3_2-1b", "qwen3-4b"]


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def measure_limits(settings: Settings) -> dict[str, Any]:
    command = [sys.executable, str(contenders.HERE / "limits.py"), f"--threads={settings.threads}"]
    return run_json([*command, "--json"], settings.work / "logs" / "limits.log")


def read_bandwidth(settings: Settings) -> float:
    """Of the memory now: on a shared machine it may double or halve within a minute."""
    return _native.kernels.measure_read_bandwidth(settings.threads)


def best_limits(measured: list[dict[str, Any]]) -> dict[str, Any]:
    """The most that the machine has shown in any round."""
    return {
        "busy_shares": [m["busy_share"] for m in measured],
        "read_bandwidth_bytes_s": max(m["read_bandwidth_bytes_s"] for m in measured),
        "int8_macs_s": {
            table: max(m["int8_macs_s"][table] for m in measured)
            for table in measured[0]["int8_macs_s"]
        },
        "selected": measured[0]["selected"],
    }


def prepare_all(model: str, everyone: list[Contender], settings: Settings) -> dict[str, Result]:
    results = {}
    for who in everyone:
        result = results[who.name] = Result(who.name, who.label, who.isa, who.is_satchel)
        say(f"{model}: preparing {who.label}")
        try:
            result.prepared = contenders.prepare(model, who, settings)
        except Failed as reason:
            result.problem = f"prepare: {reason}"
            say(f"  {reason}")
    return results


def run_round(
    model: str,
    everyone: list[Contender],
    results: dict[str, Result],
    settings: Settings,
    number: int,
) -> None:
    for who in everyone:
        result = results[who.name]
        if result.problem:
            continue
        try:
            before = read_bandwidth(settings)
            run = contenders.bench(model, who, settings, number)
            run["read_bandwidth_bytes_s"] = (before + read_bandwidth(settings)) / 2
            if who.is_satchel:
                run["long"] = contenders.long_prompt(model, who, settings, number)
        except Failed as reason:
            result.problem = f"bench: {reason}"
            say(f"  {who.label}: {reason}")
            continue
        result.runs.append(run)
        say(
            f"  {who.label:28} prefill {run['prefill_tok_s']:8.1f}"
            f"  decode {run['decode_tok_s']:7.1f} tok/s"
            f"  memory {run['read_bandwidth_bytes_s'] / 1e9:5.1f} GB/s"
        )


def run_model(
    model: str, peers: list[Contender], settings: Settings, rounds: int
) -> dict[str, Any]:
    limits = [measure_limits(settings)]
    tables = list(limits[0]["int8_macs_s"])
    everyone = [*contenders.satchels(limits[0]["selected"], tables), *peers]
    results = prepare_all(model, everyone, settings)
    for number in range(1, rounds + 1):
        say(f"{model}: round {number} of {rounds}")
        limits.append(measure_limits(settings))
        # Each round starts with another contender.
        turn = (number - 1) % len(everyone)
        run_round(model, everyone[turn:] + everyone[:turn], results, settings, number)
    return {
        "model": model,
        "macs_per_token": contenders.macs_per_token(model, settings.prompt_tokens),
        "limits": best_limits(limits),
        "results": [results[who.name].to_dict() for who in everyone],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    names = [peer.name for peer in PEERS]
    parser.add_argument("--models", nargs="+", default=MODELS, choices=sorted(SHAPES))
    parser.add_argument("--peers", nargs="*", default=names, choices=names)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--runs", type=int, default=2, help="in each process, after a warm-up")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--prompt-tokens", type=int, default=256)
    parser.add_argument("--new-tokens", type=int, default=64)
    folder = default_folder()
    parser.add_argument("--work", type=Path, default=folder / "work", help="for all files")
    parser.add_argument("--environments", type=Path, default=environments_folder())
    parser.add_argument("--fresh", action="store_true", help="prepare again what is there")
    parser.add_argument("--export-options", default="", help="more options of satchel export")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    arguments = parser.parse_args()
    settings = Settings(
        arguments.work.resolve(),
        arguments.environments.resolve(),
        arguments.threads,
        arguments.prompt_tokens,
        arguments.new_tokens,
        arguments.runs,
        arguments.fresh,
        tuple(arguments.export_options.split()),
    )
    peers = [peer for peer in PEERS if peer.name in arguments.peers]
    document: dict[str, Any] = {
        "threads": settings.threads,
        "prompt_tokens": settings.prompt_tokens,
        "new_tokens": settings.new_tokens,
        "rounds": arguments.rounds,
        "runs": settings.runs,
        "models": [],
    }
    for model in arguments.models:
        document["models"].append(run_model(model, peers, settings, arguments.rounds))
        # After each model, so that an interrupted run keeps what it has.
        (settings.work / "results.json").write_text(json.dumps(document, indent=1))
    print(json.dumps(document) if arguments.json else markdown(document))


if __name__ == "__main__":
    main()
