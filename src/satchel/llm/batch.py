"""Generations that go on together: one reading of the weights gives the next token of all."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from satchel.errors import CacheFullError
from satchel.llm.batch_member import Member
from satchel.llm.generation import Generation
from satchel.llm.pace import Pace
from satchel.llm.steps import Array, Feed, Part, run_draws, run_step
from satchel.program.names import PAGE, SHORT_STEP

_FEW = 4  # so many may guess ahead in one step; more would fill it
_SHARE = 16  # tokens of a prompt that has waited for room, beside answers that fill steps
_MUCH_LONGER = 4  # times: such a prompt does not keep another from being answered
Failed = Callable[[Generation, Exception], None]


class Batch:
    """Runs generations step by step: prompts in pieces between the steps of running answers.

    At most ``most`` run at a time; the others wait for their turn. Those of one adapter share
    steps. When the caches are full, the one that began last gives its memory up and is computed
    again later. What cannot go on is an error, or is given to ``failed`` while the others go on.

    >>> from satchel import LLM
    >>> llm = LLM("model.satchel")
    >>> batch = Batch(llm.generate(text, max_new_tokens=4) for text in ("Hello!", "Hi!"))
    >>> [generation.stop_reason for generation in batch.finish()]
    ['max_new_tokens', 'max_new_tokens']
    """

    def __init__(
        self,
        generations: Iterable[Generation] = (),
        most: int = SHORT_STEP,
        failed: Failed | None = None,
    ) -> None:
        self._all: list[Generation] = []
        self._waiting: deque[Generation] = deque()
        self._members: deque[Member] = deque()  # whose turn is next, first
        self._evicted: deque[Member] = deque()
        self._most = most
        self._failed = failed
        self._after_long = False
        self._after_drawing = False
        self._short_first = False
        self._held_since: float | None = None
        # The longest piece of a prompt while others answer, in whole pages: they wait for it.
        self.longest_piece = 1 << 30
        self.pace: Pace | None = None  # what bounds steps in which others answer
        self.page_s = 0.0  # what a page of a prompt took last
        self.expected = 0  # how many more would begin at once if prompts were read
        for generation in generations:
            self.add(generation)

    def __len__(self) -> int:
        """How many have begun and not ended."""
        return len(self._members) + len(self._evicted)

    @property
    def running(self) -> list[Generation]:
        return [member.generation for member in (*self._members, *self._evicted)]

    @property
    def waiting(self) -> int:
        """How many have not begun."""
        return len(self._waiting)

    def add(self, generation: Generation) -> None:
        """Let another generation take part; it begins when there is room for it."""
        if self._failed is None:
            self._all.append(generation)
        self._waiting.append(generation)

    def remove(self, generation: Generation) -> None:
        """Nobody wants the rest of it: what it takes of the caches is free at once."""
        if generation in self._waiting:
            self._waiting.remove(generation)
        for place in (self._members, self._evicted):
            for member in [m for m in place if m.generation is generation]:
                place.remove(member)
                member.steps.close()

    def finish(self) -> list[Generation]:
        """Make all texts, and return their generations in the order in which they were added."""
        while self.step():
            pass
        return self._all

    def step(self) -> bool:
        """One run of the model; False when all texts have ended."""
        self.admit()
        if not self._members:
            return False
        self._members = deque(sorted(self._members, key=self._turn))
        long = next((m for m in self._members if m.alone), None)
        short = [m for m in self._members if not m.alone]
        drawing, others = [m for m in short if m.draw], [m for m in short if not m.draw]
        # A long piece of a prompt takes turns with a step of those that are answering.
        if long is not None and (not short or not self._after_long):
            self._after_long = True
            if short:
                whole = long.rows > SHORT_STEP
                long.shorten(self.longest_piece if whole else self._most_beside(short))
            if not self._prepare(long):
                self._run([long])
        elif drawing and not (others and self._after_drawing):
            self._after_long, self._after_drawing = False, True
            self._draw(drawing)
        else:
            self._after_long, self._after_drawing = False, False
            short = self._together(others)
            chosen = _that_fit(short, self._most_beside(short))
            read = any(m.reading for m in chosen)
            for member in short:
                member.skipped = member not in chosen and not (member.reading and read)
            self._run(chosen)
        return True

    def _together(self, members: list[Member]) -> list[Member]:
        """Whom a step is for: while nobody answers and others' prompts are soon read, a prompt
        waits with its last token, so that answers begin together and none is slow at first."""
        unread = [m for m in members if m.left > 1]
        now, since = time.perf_counter(), self._held_since
        self._held_since = None
        for member in members:
            member.last_apart = False
        if not self.pace or not unread or not all(m.reading and not m.lost for m in self._members):
            return members
        more = self.waiting + self.expected  # whose prompts are thought to be as long as these
        longest = max(len(m.generation.prompt) for m in unread)
        left = sum(m.left for m in unread) + more * longest
        begun = now if since is None else since
        if now - begun + self.pace.reading_s(left) > self.pace.together:
            return members
        # But a short question does not wait for a long text.
        if any(_MUCH_LONGER * len(m.generation.prompt) < longest for m in members):
            return members
        if len(members) + more > 1:
            for member in unread:
                member.keep_last()
                member.shorten(SHORT_STEP)
        if len(unread) < len(members):
            self._held_since = begun
        return unread

    def _turn(self, member: Member) -> int:
        """Of prompts the one with the least left comes first, and in every other such step the
        oldest one, so that none is held up for ever; answers keep their order."""
        if not member.reading:
            return 0
        return 1 + (member.left if self._short_first else member.number)

    def _most_beside(self, members: Sequence[Member]) -> int:
        """The tokens of a step in which these go on, so that none of them waits for long."""
        answering = sum(m.rows for m in members if not m.reading)
        if not self.pace or not answering:
            return SHORT_STEP
        return self.pace.most(answering, len(self._members) + self.waiting + self.expected)

    def begins(self, generation: Generation) -> bool:
        """Whether it would begin at once, and not wait for room or for a prompt."""
        return (
            not self._evicted
            and len(self._members) < self._most
            and not any(m.goes_before(generation) for m in self._members)
        )

    def admit(self) -> None:
        """Begin with those that wait, but for those that had better wait for a prompt."""
        if self._evicted and not self._members:
            self._members.append(self._evicted.popleft())
        while self._waiting and self.begins(self._waiting[0]):
            generation = self._waiting.popleft()
            try:
                self._members.append(Member.begin(generation))
            except Exception as error:
                self._tell(generation, error)

    def _tell(self, generation: Generation, error: Exception) -> None:
        if self._failed is None:
            raise error
        self._failed(generation, error)

    def _prepare(self, member: Member) -> bool:
        """Look at an image that the next piece of a prompt shows; False if all were looked at."""
        try:
            return member.session.prepare(member.next_part().tokens)
        except Exception as error:
            self._members.remove(member)
            member.steps.close()
            self._tell(member.generation, error)
            return True

    def _run(self, members: Sequence[Member]) -> None:
        parts = [m.next_part() for m in members]
        if any(m.reading for m in members):
            self._short_first = not self._short_first
        rows = sum(len(part.tokens) for part in parts)
        started = time.perf_counter()
        try:
            results = run_step(parts)
        except CacheFullError as error:  # before anything was written
            self._make_room(members[0], error)
            return
        seconds = time.perf_counter() - started
        if rows >= PAGE:
            self.page_s = seconds * PAGE / rows
        if len(parts) == 1:
            members[0].session.costs.record(rows, seconds)
        self._hand_out(members, parts, results, seconds)

    def _draw(self, members: Sequence[Member]) -> None:
        """The chip chooses tokens of those that share an adapter, several runs at once."""
        first = members[0].session
        most = min(SHORT_STEP, first.most_together)
        chosen = [m for m in members if m.session.adapter == first.adapter][:most]
        draws = [(m.session, m.draw) for m in chosen if m.draw]
        started = time.perf_counter()
        try:
            results = run_draws(draws)
        except CacheFullError as error:
            self._make_room(chosen[0], error)
            return
        seconds = (time.perf_counter() - started) / max(1, len(results[0]))
        parts = [Part(session, draw.tokens, []) for session, draw in draws]
        self._hand_out(chosen, parts, results, seconds)

    def _hand_out(
        self,
        members: Sequence[Member],
        parts: Sequence[Part],
        results: Sequence[Array],
        seconds: float,
    ) -> None:
        """Give each its part of a run of the model, which took so long."""
        rows = sum(len(part.tokens) for part in parts)
        guessed = 1 << 30
        if self.pace:
            if rows <= SHORT_STEP:
                self.pace.record(rows, seconds)
            guessed = self.pace.guesses(len(self._members))
        crowded = len(self._members) > _FEW or any(m.reading for m in self._members)
        for member, part, logits in zip(members, parts, results, strict=True):
            self._members.remove(member)
            member.session.crowded, member.session.most_guessed = crowded, guessed
            try:
                more = member.take(part, logits)
            except Exception as error:
                member.steps.close()
                self._tell(member.generation, error)
                continue
            if more:
                self._members.append(member)  # behind those that have not had their turn
        self._come_back()

    def _make_room(self, first: Member, error: CacheFullError) -> None:
        """Who began last gives its memory up; one that is alone cannot go on."""
        youngest = max(self._members, key=lambda m: m.number)
        if len(self._members) == 1:
            self._members.remove(first)
            first.steps.close()
            self._tell(first.generation, error)
            return
        self._members.remove(youngest)
        youngest.give_up_cache()
        self._evicted.append(youngest)

    def _come_back(self) -> None:
        """One that gave its memory up goes on when there is memory for it and for what comes."""
        if not self._evicted or not self._members:
            return
        usage = self._members[0].session.instance.cache_usage
        needed = self._evicted[0].pages + len(self._members)
        if usage.most_pages - usage.pages >= needed:
            self._members.append(self._evicted.popleft())


def _that_fit(members: Sequence[Member], most: int) -> list[Member]:
    """As many as a short step takes, of the first one's adapter.

    Beside those who are answering, prompts have a part in ``most`` tokens.

    Those who are answering come first, and prompts have the room that is left: a piece of less than
    a page may be cut anywhere. Whoever had no room comes first in the next step.
    """
    chosen: list[Member] = []
    rows = 0
    answering = any(not m.reading for m in members)
    for member in sorted(members, key=lambda m: (m.reading and not m.skipped, not m.skipped)):
        if chosen and member.session.adapter != chosen[0].session.adapter:
            continue
        trees = [m for m in [*chosen, member] if not isinstance(m.request, Feed)]
        largest = min([SHORT_STEP, member.session.most_together])
        room = min([largest, *(m.session.most_rows for m in trees)]) - rows
        if member.reading and room > 0 and (answering or chosen):
            # Whoever was skipped has a share in any case.
            wanted = room if not answering else _SHARE if member.skipped else most - rows
            if wanted <= 0:
                continue
            member.shorten(min(room, wanted))
        if not chosen or member.rows <= room:
            chosen.append(member)
            rows += member.rows
    return chosen
