"""A request's answers while they are made: the engine's thread writes, the server's loop reads."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

from satchel.llm.generation import Generation
from satchel.llm.prompt_logprobs import LogProb


@dataclass(frozen=True)
class Progress:
    """What a step gave to one of the answers; all of its steps together are the answer."""

    index: int
    text: str
    tokens: int
    logprobs: Sequence[LogProb] = ()
    ended: bool = False
    error: Exception | None = None


@dataclass(eq=False)
class Ticket:
    """One of a job's answers, in the queue or being made."""

    job: Job
    index: int
    generation: Generation
    taken: int = 0  # tokens that were given to the client
    last_token: float = 0.0


@dataclass(eq=False)
class Job:
    """The answers to one request. Iterate over it for what comes; ``cancel`` ends it early."""

    generations: Sequence[Generation]
    client: str
    deadline: float
    on_cancel: Callable[[Job], None]
    asked: float = field(default_factory=time.perf_counter)
    cancelled: bool = False

    def __post_init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.inbox: asyncio.Queue[Progress] = asyncio.Queue()
        self.tickets = [Ticket(self, i, g) for i, g in enumerate(self.generations)]
        self.left = len(self.tickets)

    async def __aiter__(self) -> AsyncIterator[Progress]:
        while self.left:
            progress = await self.inbox.get()
            self.left -= progress.ended
            if progress.error is not None:
                raise progress.error
            yield progress

    def cancel(self) -> None:
        """Nobody reads any more; from any thread, and as often as one likes."""
        if not self.cancelled and self.left:
            self.cancelled = True
            self.on_cancel(self)
