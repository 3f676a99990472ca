"""Generations that go on together: one reading of the weights gives the next token of all."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from satchel.llm.generation import Generation
from satchel.llm.session import Session
from satchel.llm.steps import Array, Feed, Part, Request, Steps, run_step
from satchel.program.names import SHORT_STEP


@dataclass
class _Member:
    """A generation that has begun, the step that it asks for, and how much of that is done."""

    generation: Generation
    steps: Steps[None]
    request: Request
    pieces: deque[int]  # of a Feed: the tokens of each step that is left
    fed: int = 0

    @property
    def session(self) -> Session:
        session = self.generation.session
        assert session is not None
        return session

    @property
    def rows(self) -> int:
        """The tokens of its next step."""
        return self.pieces[0] if self.pieces else len(self.request.tokens)

    def next_part(self) -> Part:
        if not isinstance(self.request, Feed):
            return self.session.part_of(self.request)
        tokens = self.request.tokens[self.fed : self.fed + self.rows]
        return Part(self.session, tokens, [len(tokens) - 1] if len(self.pieces) == 1 else [])

    def take(self, part: Part, logits: Array) -> bool:
        """Go on with a step's result; False when the text has ended."""
        if isinstance(self.request, Feed):
            self.session.tokens += part.tokens
            self.fed += self.pieces.popleft()
            if self.pieces:
                return True
            logits = logits[0]
        try:
            self._ask(self.steps.send(logits))
        except StopIteration:
            return False
        return True

    def _ask(self, request: Request) -> None:
        self.request, self.fed = request, 0
        count = len(request.tokens)
        self.session.require_room(count)
        self.pieces = deque(self.session.pieces(count) if isinstance(request, Feed) else ())

    @classmethod
    def begin(cls, generation: Generation) -> _Member:
        steps = generation.steps()
        member = cls(generation, steps, Feed([]), deque())
        member._ask(next(steps))
        return member


class Batch:
    """Runs generations step by step: prompts in pieces between the steps of running answers.

    At most ``most`` run at a time; the others wait for their turn. Those of one adapter share
    steps.

    >>> from satchel import LLM
    >>> llm = LLM("model.satchel")
    >>> batch = Batch(llm.generate(text, max_new_tokens=4) for text in ("Hello!", "Hi!"))
    >>> [generation.stop_reason for generation in batch.finish()]
    ['max_new_tokens', 'max_new_tokens']
    """

    def __init__(self, generations: Iterable[Generation] = (), most: int = SHORT_STEP) -> None:
        self._all: list[Generation] = []
        self._waiting: deque[Generation] = deque()
        self._members: deque[_Member] = deque()  # whose turn is next, first
        self._most = most
        self._after_long = False
        for generation in generations:
            self.add(generation)

    def add(self, generation: Generation) -> None:
        """Let another generation take part; it begins when there is room for it."""
        self._all.append(generation)
        self._waiting.append(generation)

    def finish(self) -> list[Generation]:
        """Make all texts, and return their generations in the order in which they were added."""
        while self.step():
            pass
        return self._all

    def step(self) -> bool:
        """One run of the model; False when all texts have ended."""
        self._admit()
        if not self._members:
            return False
        long = next((m for m in self._members if m.rows > SHORT_STEP), None)
        short = [m for m in self._members if m.rows <= SHORT_STEP]
        # A long piece of a prompt takes turns with a step of those that are answering.
        if long is not None and (not short or not self._after_long):
            self._after_long = True
            self._run([long])
        else:
            self._after_long = False
            self._run(_that_fit(short))
        return True

    def _admit(self) -> None:
        """Begin with those that wait, but not while a prompt's pages are still to come: the next
        prompt may begin with the same ones."""
        while (
            self._waiting
            and len(self._members) < self._most
            and not any(m.rows > SHORT_STEP for m in self._members)
        ):
            self._members.append(_Member.begin(self._waiting.popleft()))

    def _run(self, members: Sequence[_Member]) -> None:
        parts = [m.next_part() for m in members]
        results = run_step(parts)
        for member, part, logits in zip(members, parts, results, strict=True):
            self._members.remove(member)
            if member.take(part, logits):
                self._members.append(member)  # behind those that have not had their turn


def _that_fit(members: Sequence[_Member]) -> list[_Member]:
    """As many as a short step takes, of the first one's adapter."""
    chosen: list[_Member] = []
    rows = 0
    for member in members:
        alike = not chosen or member.session.adapter == chosen[0].session.adapter
        trees = [m for m in [*chosen, member] if not isinstance(m.request, Feed)]
        most = min([SHORT_STEP, *(m.session.most_rows for m in trees)])
        if alike and rows + member.rows <= (most if chosen else max(most, member.rows)):
            chosen.append(member)
            rows += member.rows
    return chosen
