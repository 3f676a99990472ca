"""One thread for each model: it runs the steps of all answers, and nobody else touches the caches.

Requests come in from the server's loop and tokens go back to it; what they mean is not known here.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import defaultdict, deque
from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from satchel.llm.batch import Batch
from satchel.llm.generation import Generation
from satchel.llm.llm import LLM
from satchel.llm.pace import Pace
from satchel.program.names import PAGE, SHORT_STEP
from satchel.runtime.program import CacheUsage, OneSequence
from satchel.serve.errors import ApiError, busy
from satchel.serve.fair_queue import FairQueue
from satchel.serve.jobs import Job, Progress, Ticket
from satchel.serve.metrics import Metrics
from satchel.serve.settings import Settings

_log = logging.getLogger("satchel.serve")
_MOST_IDLE = 128  # texts that are kept for those that begin alike, if there is memory
_Inbox = asyncio.Queue[Progress]


@dataclass(frozen=True)
class _Errand:
    """Work on the model that is no answer, and where its result goes."""

    work: Generator[None, None, Any]
    result: asyncio.Future[Any]

    def end(self, value: Any = None, error: Exception | None = None) -> None:
        """From the engine's thread."""

        def tell() -> None:
            if self.result.done():
                return
            if error is not None:
                self.result.set_exception(error)
            else:
                self.result.set_result(value)

        with suppress(RuntimeError):  # the loop has ended, and its clients with it
            self.result.get_loop().call_soon_threadsafe(tell)


class Engine:
    """Makes the answers of one model, many at a time.

    ``submit`` is called on a server's loop. Answers that cannot begin wait, clients in turns; if
    too many wait, ``submit`` refuses. A job that is cancelled is gone before the next step.
    """

    def __init__(self, name: str, llm: LLM, settings: Settings, metrics: Metrics) -> None:
        self.name, self.llm = name, llm
        if llm.takes_images:
            _ = llm.pictures  # before requests come in several threads
        self._settings, self._metrics = settings, metrics
        llm.sessions.most_idle = _MOST_IDLE
        instance = llm.session.instance
        single = isinstance(instance, OneSequence)
        self._most = 1 if single else settings.max_sequences
        self._pace: Pace | None = None
        if self._most > 1 and instance.same_bits_in_blocks:
            # Then prompts are read in short steps always, so that their bits depend on nobody.
            self._pace = Pace(settings.stretch)
            llm.sessions.longest_piece = SHORT_STEP
        self.cache: CacheUsage | None = None if single else instance.cache_usage
        self._queue: FairQueue[Ticket] = FairQueue()
        self._gone: list[Job] = []
        self._errands: deque[_Errand] = deque()
        self._running: dict[Generation, Ticket] = {}
        self._outgoing: dict[asyncio.AbstractEventLoop, list[tuple[_Inbox, Progress]]]
        self._outgoing = defaultdict(list)
        self._answer_s = 1.0  # how long an answer takes, about
        self._draining = self._stopped = False
        self._changed = threading.Condition()
        self._batch = self._new_batch()
        self._thread = threading.Thread(target=self._work, name=f"satchel {name}", daemon=True)
        self._thread.start()

    def _new_batch(self) -> Batch:
        batch = Batch(most=self._most, failed=self._fail)
        batch.longest_piece = PAGE  # until it is known how long a page takes
        batch.pace = self._pace
        return batch

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def submit(self, generations: Sequence[Generation], client: str) -> Job:
        """Begin with these when it is their turn; ApiError 429 or 503 if they cannot wait."""
        job = Job(generations, client, time.monotonic() + self._settings.time_limit, self._cancel)
        with self._changed:
            if self._draining:
                raise busy("the server is about to stop", 5, 503)
            room = self._most - len(self._running) + self._settings.queue
            if len(self._queue) + len(generations) > room:
                raise busy(
                    f"{len(self._queue)} answers wait already; at most {self._settings.queue} may",
                    self._wait_s(),
                )
            for ticket in job.tickets:
                self._queue.put(client, ticket)
            self._changed.notify()
        return job

    def run(self, work: Generator[None, None, Any]) -> asyncio.Future[Any]:
        """Let something else have the model, one step at a time between those of answers.

        The future has its result; when nobody wants it any more the work ends.
        """
        errand = _Errand(work, asyncio.get_running_loop().create_future())
        with self._changed:
            if self._draining:
                raise busy("the server is about to stop", 5, 503)
            if len(self._errands) >= max(1, self._settings.queue):
                raise busy(f"{len(self._errands)} texts wait already", self._wait_s())
            self._errands.append(errand)
            self._changed.notify()
        return errand.result

    def _wait_s(self) -> int:
        """When to ask again: about when some that wait have had their turn."""
        turns = (len(self._queue) + 1) / self._most
        return max(1, min(60, round(turns * self._answer_s)))

    def _cancel(self, job: Job) -> None:
        with self._changed:
            self._gone.append(job)
            self._changed.notify()

    def drain(self, seconds: float) -> bool:
        """Take nothing new and finish what has been taken on; False if time was not enough."""
        end = time.monotonic() + seconds
        with self._changed:
            self._draining = True
        while self._running or len(self._queue) or self._errands:
            if time.monotonic() > end:
                return False
            time.sleep(0.01)
        return True

    def close(self) -> None:
        """Stop at once; what is unfinished ends with an error."""
        with self._changed:
            self._draining = self._stopped = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while self._wait_for_work():
            try:
                self._batch.step()
                self._collect()
                self._go_on_with_errand()
            except Exception as error:  # of no single answer: a bug, but the server goes on
                _log.exception("a step of %s failed", self.name)
                self._fail_all(error)
            self._send()
        self._fail_all(busy("the server is about to stop", 5, 503))
        while self._errands:
            self._errands.popleft().end(error=busy("the server is about to stop", 5, 503))
        self._send()

    def _go_on_with_errand(self) -> None:
        if not self._errands:
            return
        errand = self._errands[0]
        try:
            if not errand.result.cancelled():
                next(errand.work)
                return
            errand.work.close()
        except StopIteration as end:
            errand.end(end.value)
        except Exception as error:
            errand.end(error=error)
        self._errands.popleft()

    def _wait_for_work(self) -> bool:
        with self._changed:
            while not (
                self._stopped or self._running or len(self._queue) or self._gone or self._errands
            ):
                self._changed.wait()
            self._drop_gone()
            # Later ones wait in the queue, where clients take turns, and not in the batch.
            while ticket := self._queue.take(lambda t: self._batch.begins(t.generation)):
                self._running[ticket.generation] = ticket
                self._batch.add(ticket.generation)
                self._batch.admit()
            self._batch.expected = min(len(self._queue), self._most - len(self._running))
            return not self._stopped

    def _drop_gone(self) -> None:
        now = time.monotonic()
        late = {t.job for t in self._running.values() if t.job.deadline < now}
        for job in [*self._gone, *late]:
            for ticket in job.tickets:
                self._queue.remove(ticket)
                if ticket.generation in self._running:
                    self._batch.remove(ticket.generation)
                    self._metrics.count(
                        "satchel_answers_total", model=self.name, reason="cancelled"
                    )
                    del self._running[ticket.generation]  # others see it when all is done
                if job in late:
                    error = ApiError(408, "the answer took too long", code="timeout")
                    self._give(ticket, Progress(ticket.index, "", 0, (), True, error))
        self._gone.clear()

    def _collect(self) -> None:
        """What the step gave to each answer."""
        now = time.perf_counter()
        for ticket in list(self._running.values()):
            generation = ticket.generation
            total, ended = len(generation.tokens), generation.stop_reason is not None
            if total == ticket.taken and not ended:
                continue
            pieces, new = generation.take_pieces(), total - ticket.taken
            self._time(ticket, new, now)
            logprobs = generation.logprobs[ticket.taken : total]
            ticket.taken = total
            self._give(ticket, Progress(ticket.index, "".join(pieces), new, logprobs, ended))
            if ended:
                self._end(ticket, now)
        if self.cache is not None:
            self.cache = self.llm.sessions.first.instance.cache_usage
        if self._batch.page_s:
            pages = int(self._settings.token_gap / self._batch.page_s)
            self._batch.longest_piece = PAGE * max(1, pages)

    def _time(self, ticket: Ticket, new: int, now: float) -> None:
        if not new:
            return
        if ticket.taken:
            gap = now - ticket.last_token
            self._metrics.observe("satchel_token_gap_seconds", gap, model=self.name)
        else:
            first = now - ticket.job.asked
            self._metrics.observe("satchel_first_token_seconds", first, model=self.name)
        ticket.last_token = now

    def _end(self, ticket: Ticket, now: float) -> None:
        del self._running[ticket.generation]
        stats, model = ticket.generation.stats, self.name
        seconds = now - ticket.job.asked
        self._answer_s += (seconds - self._answer_s) / 8
        for name, amount in (
            ("prompt", stats.prompt_tokens),
            ("cached", stats.reused_tokens),
            ("generated", stats.new_tokens),
        ):
            self._metrics.count(f"satchel_{name}_tokens_total", amount, model=model)
        self._metrics.observe("satchel_answer_seconds", seconds, model=model)
        reason = ticket.generation.stop_reason or ""
        self._metrics.count("satchel_answers_total", model=model, reason=reason)

    def _fail(self, generation: Generation, error: Exception) -> None:
        ticket = self._running.pop(generation)
        self._metrics.count("satchel_answers_total", model=self.name, reason="error")
        self._give(ticket, Progress(ticket.index, "", 0, (), True, error))

    def _fail_all(self, error: Exception) -> None:
        for generation in list(self._running):
            self._batch.remove(generation)
            self._fail(generation, error)
        with self._changed:
            while self._stopped and len(self._queue):
                if ticket := self._queue.take():
                    self._give(ticket, Progress(ticket.index, "", 0, (), True, error))
        self._batch = self._new_batch()

    def _give(self, ticket: Ticket, progress: Progress) -> None:
        self._outgoing[ticket.job.loop].append((ticket.job.inbox, progress))

    def _send(self) -> None:
        """One call for each loop, whatever the number of answers."""
        for loop, sent in self._outgoing.items():
            try:
                loop.call_soon_threadsafe(_deliver, sent)
            except RuntimeError:  # the loop has ended, and its clients with it
                continue
        self._outgoing = defaultdict(list)


def _deliver(sent: Sequence[tuple[_Inbox, Progress]]) -> None:
    for inbox, progress in sent:
        inbox.put_nowait(progress)
