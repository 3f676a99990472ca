"""What clients of one server wait for, in processor time: it can be told on a busy machine too.

    python benchmarks/serve_pace.py smollm2-135m --clients 1,4,16

The steps of a server's engine on one thread, without HTTP: clients ask one question after the other
about passages of this project's documents, as in serve_load.py. Times are the processor's, so what
else runs on the machine counts little; two threads take somewhat more than half of them.
"""

from __future__ import annotations

import argparse
import time
from collections import deque
from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
from serve_load import prompts

from satchel import LLM
from satchel.llm import batch as batch_module
from satchel.llm.batch import Batch
from satchel.llm.generation import Generation
from satchel.llm.pace import Pace
from satchel.program.names import SHORT_STEP

clock = time.process_time


class Clients:
    """Each asks its next question when its last one is answered."""

    def __init__(self, llm: LLM, count: int, requests: int, new_tokens: int) -> None:
        self._llm, self._count, self._new_tokens = llm, count, new_tokens
        self._questions = deque(prompts(count * requests, seed=0))
        self._queue: deque[tuple[Generation, float]] = deque()
        self._asked: dict[Generation, float] = {}
        self._last: dict[Generation, tuple[int, float]] = {}
        self.first: list[float] = []
        self.gaps: list[float] = []
        self.tokens = 0
        for _ in range(count):
            self._ask()

    def _ask(self) -> None:
        if self._questions:
            messages = [{"role": "user", "content": self._questions.popleft()}]
            answer = self._llm.generate(messages, max_new_tokens=self._new_tokens, temperature=0.0)
            self._queue.append((answer, clock()))

    def come_in(self, batch: Batch) -> None:
        for answer, asked in list(self._queue):
            if batch.begins(answer):
                self._queue.remove((answer, asked))
                self._asked[answer] = asked
                batch.add(answer)
                batch.admit()
        batch.expected = min(len(self._queue), self._count - len(self._asked))

    def look(self) -> None:
        """What the last step gave to each."""
        now = clock()
        for answer, asked in list(self._asked.items()):
            count, last = self._last.get(answer, (0, asked))
            if len(answer.tokens) > count:
                (self.gaps if count else self.first).append(now - last)
                self.tokens += len(answer.tokens) - count
                self._last[answer] = (len(answer.tokens), now)
            if answer.stop_reason is not None:
                del self._asked[answer]
                self._ask()


def measure(model: str, clients: int, given: argparse.Namespace) -> str:
    llm = LLM(model, threads=1)
    llm.sessions.longest_piece = SHORT_STEP
    batch = Batch(most=clients)
    batch.pace = Pace()
    everyone = Clients(llm, clients, given.requests, given.new_tokens)
    started = clock()
    while True:
        everyone.come_in(batch)
        if not batch.step():
            break
        everyone.look()
    rate = everyone.tokens / (clock() - started)
    figures = [*_percentiles(everyone.first), *_percentiles(everyone.gaps)]
    return f"| {clients} | {rate:.1f} | " + " | ".join(figures) + " |"


def _percentiles(seconds: Sequence[float]) -> list[str]:
    return [f"{1e3 * float(np.percentile(seconds, share)):.0f}" for share in (50, 99)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--clients", default="1,4,16")
    parser.add_argument("--requests", type=int, default=3, help="of each client")
    parser.add_argument("--new-tokens", type=int, default=48)
    given = parser.parse_args()
    batch_module.time = SimpleNamespace(perf_counter=clock)  # type: ignore[assignment]
    print("| clients | tok/s | first p50 | p99 | gap p50 | p99 |\n|" + "---|" * 6)
    for clients in map(int, given.clients.split(",")):
        print(measure(given.model, clients, given), flush=True)


if __name__ == "__main__":
    main()
