"""Time of prompts of several lengths, and of one token after contexts of several lengths.

python benchmarks/lengths.py model.satchel --prompts 256,2048 --contexts 256,2048 --json
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

import satchel
from satchel.llm.session import Session

DECODED = 8  # tokens per measurement of decode


def prefill_seconds(session: Session, prompt: list[int], runs: int) -> float:
    """Of reading the whole prompt into an empty cache: the fastest of some runs."""
    times = []
    for _ in range(runs):
        session.rewind(0)
        started = time.perf_counter()
        session.feed(prompt)
        times.append(time.perf_counter() - started)
    return min(times)


def decode_seconds(session: Session, context: list[int], runs: int) -> float:
    """Of one token after that context: the median over single tokens, the best of some runs."""
    session.rewind(session.common_prefix(context))
    if session.position < len(context):
        session.feed(context[session.position :])
    medians = []
    for _ in range(runs):
        times = []
        for token in range(DECODED):
            started = time.perf_counter()
            session.feed([token])
            times.append(time.perf_counter() - started)
        medians.append(statistics.median(times))
        session.rewind(len(context))
    return min(medians)


def measure(
    path: Path, prompts: list[int], contexts: list[int], threads: int, runs: int
) -> dict[str, Any]:
    program = satchel.load(path)
    session = Session(program, threads)
    vocabulary = int(program.methods[0]["outputs"][0]["shape"][-1])
    longest = max([*prompts, *contexts, 1])
    tokens = np.random.default_rng(0).integers(0, vocabulary, longest).tolist()
    session.feed(tokens[:64])  # weights into memory
    return {
        "prefill_s": {n: prefill_seconds(session, tokens[:n], runs) for n in prompts},
        "decode_s": {n: decode_seconds(session, tokens[:n], runs) for n in sorted(contexts)},
        "threads": session.instance.threads,
        "kernels": session.instance.kernels,
        "prefill_ar_len": session.prefill_ar_len,
        "context": session.context,
    }


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("program", type=Path)
    parser.add_argument("--prompts", type=numbers, default=[], metavar="N,N,…")
    parser.add_argument("--contexts", type=numbers, default=[], metavar="N,N,…")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="one JSON object")
    arguments = parser.parse_args()
    result = measure(
        arguments.program,
        arguments.prompts,
        arguments.contexts,
        arguments.threads,
        arguments.runs,
    )
    if arguments.json:
        print(json.dumps(result))
        return
    for length, seconds in result["prefill_s"].items():
        print(f"prompt of {length:6} tokens {seconds:9.3f} s {length / seconds:9.1f} tok/s")
    for length, seconds in result["decode_s"].items():
        print(f"token after {length:6}      {seconds * 1000:9.2f} ms {1 / seconds:8.1f} tok/s")


if __name__ == "__main__":
    main()
