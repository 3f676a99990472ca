"""Tokens a second of several conversations that are answered together, beside reading a prompt.

    python benchmarks/many_sequences.py model.satchel --sequences 1,2,4,8,16,32
    python benchmarks/many_sequences.py model.satchel --peer llamacpp/bin/python --gguf model.gguf

A step reads the weights once for the next token of all, so that few sequences are limited by the
memory (as many times as fast as one alone), and many by arithmetic, which reading a prompt shows.
What memory gives changes with the machine's neighbours, so it is measured around each number.
With --peer, the interpreter of an environment with llama-cpp-python, llama.cpp does the same in
turns with Satchel, each time in a process of its own; the table has the medians.

On a machine that others use, --own-time counts the processor's time that Satchel itself took,
shared by its threads, and takes the best; a thread that waits for another counts as one that works.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from satchel import _native
from satchel.llm.session import Session
from satchel.llm.steps import Part, run_step
from satchel.program.names import KV_METHOD
from satchel.program.stored_graphs import read_graphs
from satchel.runtime.program import Program
from satchel.sweeps.processes import run_json

WARM_UP = 6.0  # seconds
Clock = Callable[[], float]


def step_bytes(program: Program) -> int:
    """What a step reads at least: the weights of all layers, and no more than rows of a table."""
    stored = {str(w["name"]): int(w["codes_size"]) + int(w["scales_size"]) for w in program.weights}
    graph = read_graphs(program)[KV_METHOD]
    read = {
        value.weight.name
        for node in graph.nodes
        for value in node.inputs
        if value is not None and value.weight is not None and node.op != "embedding"
    }
    return sum(stored[name] for name in read)


def step_seconds(sessions: list[Session], steps: int, clock: Clock) -> list[float]:
    """How long each of some steps took that gave every session its next token."""
    seconds = []
    tokens = [3] * len(sessions)
    for _ in range(steps):
        started = clock()
        logits = run_step([Part(s, [t], [0]) for s, t in zip(sessions, tokens, strict=True)])
        seconds.append(clock() - started)
        for session, token in zip(sessions, tokens, strict=True):
            session.tokens.append(token)
        tokens = [int(row[0].argmax()) for row in logits]
    return seconds


def measure(
    program: Program, counts: list[int], context: int, steps: int, threads: int, own: bool
) -> dict[str, Any]:
    instance = program.instance(threads)

    def clock() -> float:
        return time.process_time() / instance.threads if own else time.perf_counter()

    typical = min if own else statistics.median
    prompt = [5 + i % 200 for i in range(context)]
    first = Session(program, instance=instance)
    until = time.perf_counter() + WARM_UP  # in which weights come into memory, and large pages
    while time.perf_counter() < until:
        first.rewind(0)
        first.feed(prompt)
    seconds = []
    for _ in range(3):
        started = clock()
        first.rewind(0)
        first.feed(prompt)
        seconds.append(clock() - started)
    prefill = context / typical(seconds)
    rates, limits = {}, {}

    def memory_steps() -> float:
        """Steps a second that memory allows at this moment."""
        return float(_native.kernels.measure_read_bandwidth(instance.threads)) / step_bytes(program)

    for count in counts:
        before = memory_steps()
        sessions = [first.fork(context) for _ in range(count)]
        step_seconds(sessions, 3, clock)
        rates[count] = count / typical(step_seconds(sessions, steps, clock))
        for session in sessions:
            session.close()
        limits[count] = (before + memory_steps()) / 2
    return {
        "prefill_tok_s": prefill,
        "together_tok_s": rates,
        "memory_limit_steps_s": limits,
        "threads": instance.threads,
    }


def in_turns(given: argparse.Namespace) -> dict[str, Any]:
    """Medians of both, who take turns."""
    options = [f"--{n}={getattr(given, n)}" for n in ("sequences", "context", "steps", "threads")]
    here = Path(__file__).resolve()
    peer = str(here.parent / "peers" / "many_llamacpp.py")
    commands = {
        "satchel": [sys.executable, str(here), given.program, *options, "--json"],
        "llama.cpp": [given.peer, peer, given.gguf, *options],
    }
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in commands}
    with tempfile.TemporaryDirectory() as logs:
        for _ in range(given.rounds):
            for name, command in commands.items():
                found[name].append(run_json(command, Path(logs) / f"{name}.log"))

    def median(of: list[dict[str, Any]]) -> dict[str, Any]:
        by_count = {
            field: {n: statistics.median(one[field][n] for one in of) for n in of[0][field]}
            for field in ("together_tok_s", "memory_limit_steps_s")
            if field in of[0]
        }
        return {"prefill_tok_s": statistics.median(one["prefill_tok_s"] for one in of), **by_count}

    return {name: median(of) for name, of in found.items()}


def print_table(own: dict[str, Any], peer: dict[str, Any] | None, context: int) -> None:
    prefill = own["prefill_tok_s"]
    line = f"prompt of {context} tokens: {prefill:.0f} tok/s"
    if peer:
        line += f"; llama.cpp's prompt: {peer['prefill_tok_s']:.0f} tok/s"
    print(line)
    for count, rate in own["together_tok_s"].items():
        memory = own["memory_limit_steps_s"][count]
        line = f"{int(count):3d} sequences: {rate:7.1f} tok/s, "
        line += f"{rate / (int(count) * memory):4.0%} of the {memory:.1f} steps/s memory allows, "
        line += f"{rate / prefill:.0%} of prefill"
        if peer:
            other = peer["together_tok_s"][count]
            line += f"; llama.cpp {other:7.1f} tok/s, {rate / other:.2f} x"
        print(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("program")
    parser.add_argument("--sequences", default="1,2,4,8,16,32")
    parser.add_argument("--context", type=int, default=256, help="tokens before the first step")
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--peer", metavar="PYTHON", help="a Python with llama-cpp-python")
    parser.add_argument("--gguf", metavar="FILE", help="what llama.cpp runs")
    parser.add_argument("--rounds", type=int, default=3, help="turns of both")
    parser.add_argument("--own-time", action="store_true", help="for a machine that others use")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if given.peer and not given.gguf:
        parser.error("--peer needs --gguf FILE")
    if given.peer and given.own_time:
        parser.error("--own-time is Satchel's alone: leave out --peer")
    if given.peer:
        found = in_turns(given)
    else:
        counts = [int(n) for n in given.sequences.split(",")]
        found = measure(
            Program(given.program),
            counts,
            given.context,
            given.steps,
            given.threads,
            given.own_time,
        )
    if given.json:
        print(json.dumps(found))
    elif given.peer:
        print_table(found["satchel"], found["llama.cpp"], given.context)
    else:
        print_table(found, None, given.context)


if __name__ == "__main__":
    main()
