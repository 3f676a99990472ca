"""Tokens a second of several conversations that are answered together, beside reading a prompt.

    python benchmarks/many_sequences.py model.satchel --sequences 1,2,4,8,16,32

A step reads the weights once for the next token of all, so that few sequences are limited by the
memory (as many times as fast as one alone), and many by arithmetic, which reading a prompt shows.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

from satchel.llm.session import Session
from satchel.llm.steps import Part, run_step
from satchel.runtime.program import Program


def step_seconds(sessions: list[Session], steps: int) -> list[float]:
    """How long each of some steps took that gave every session its next token."""
    seconds = []
    tokens = [3] * len(sessions)
    for _ in range(steps):
        started = time.perf_counter()
        logits = run_step([Part(s, [t], [0]) for s, t in zip(sessions, tokens, strict=True)])
        seconds.append(time.perf_counter() - started)
        for session, token in zip(sessions, tokens, strict=True):
            session.tokens.append(token)
        tokens = [int(row[0].argmax()) for row in logits]
    return seconds


def measure(
    program: Program, counts: list[int], context: int, steps: int, threads: int
) -> dict[str, object]:
    instance = program.instance(threads)
    prompt = [5 + i % 200 for i in range(context)]
    first = Session(program, instance=instance)
    first.feed(prompt)  # so that weights are in memory
    started = time.perf_counter()
    first.rewind(0)
    first.feed(prompt)
    prefill = context / (time.perf_counter() - started)
    rates = {}
    for count in counts:
        sessions = [first.fork(context) for _ in range(count)]
        step_seconds(sessions, 3)
        rates[count] = count / statistics.median(step_seconds(sessions, steps))
        for session in sessions:
            session.close()
    return {"prefill_tok_s": prefill, "together_tok_s": rates, "threads": instance.threads}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("program")
    parser.add_argument("--sequences", default="1,2,4,8,16,32")
    parser.add_argument("--context", type=int, default=256, help="tokens before the first step")
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    counts = [int(n) for n in given.sequences.split(",")]
    found = measure(Program(given.program), counts, given.context, given.steps, given.threads)
    if given.json:
        print(json.dumps(found))
        return
    prefill, rates = found["prefill_tok_s"], found["together_tok_s"]
    assert isinstance(rates, dict) and isinstance(prefill, float)
    print(f"prompt of {given.context} tokens: {prefill:.0f} tok/s")
    for count, rate in rates.items():
        gain = f"{rate / rates[counts[0]]:.2f} x"
        print(
            f"{count:3d} sequences: {rate:7.1f} tok/s, {gain}, {rate / prefill:.0%} of a prompt's"
        )


if __name__ == "__main__":
    main()
