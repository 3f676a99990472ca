"""A generation that takes part in a batch: which step it asks for, and how much of that is done."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import count

from satchel.llm.generation import Generation
from satchel.llm.session import Session
from satchel.llm.steps import Array, Draw, Feed, Look, Part, Request, Steps
from satchel.program.names import PAGE, SHORT_STEP

_numbers = count()


@dataclass(eq=False)
class Member:
    """A generation that has begun.

    What it asks for may be long, and is then read in several ``pieces``. One whose cache was given
    up has a text to read again first: ``lost``.
    """

    generation: Generation
    steps: Steps[None]
    request: Request
    pieces: deque[int]  # of a Feed: the tokens of each step that is left
    fed: int = 0
    lost: list[int] = field(default_factory=list)
    number: int = field(default_factory=lambda: next(_numbers))  # in the order of beginning
    skipped: bool = False  # whether there was no room for it in the step before
    last_apart: bool = False  # whether its prompt's last token is for a step of its own

    @classmethod
    def begin(cls, generation: Generation) -> Member:
        steps = generation.steps()
        member = cls(generation, steps, Feed([]), deque())
        try:
            member._ask(next(steps))
        except BaseException:
            steps.close()
            raise
        return member

    @property
    def session(self) -> Session:
        session = self.generation.session
        assert session is not None
        return session

    @property
    def rows(self) -> int:
        """The tokens of its next step."""
        return self.pieces[0] if self.pieces else len(self.request.tokens)

    @property
    def reading(self) -> bool:
        """Whether a prompt is being read, or a text again: nobody sees tokens of it meanwhile."""
        return bool(self.lost) or not self.generation.tokens

    @property
    def draw(self) -> Draw | None:
        """What the chip is to choose for it, if that is its next step."""
        return self.request if isinstance(self.request, Draw) and not self.lost else None

    @property
    def shows(self) -> bool:
        """Whether its next step has a part of an image in it."""
        return isinstance(self.request, Feed) and self.next_part().shows

    @property
    def alone(self) -> bool:
        """Whether its next step is one of its own: pages of a prompt, or an image."""
        return self.rows > SHORT_STEP or (self.reading and self.shows)

    @property
    def left(self) -> int:
        """The tokens that are still to be read."""
        return sum(self.pieces)

    def goes_before(self, waiting: Generation) -> bool:
        """Whether one that waits had better begin when more of this prompt has been read.

        The page that is read now may be one of its own, which is then there; and prompts that are
        read by turns are all late. But a short question does not wait for a long text.
        """
        if not self.reading or self.left < PAGE:
            return False
        if 2 * len(waiting.prompt) > self.left:
            return True
        page_end = self.session.position // PAGE * PAGE + PAGE
        return list(waiting.prompt[:page_end]) == list(self.generation.prompt[:page_end])

    @property
    def pages(self) -> int:
        """The pages of a cache that its text takes."""
        return (len(self.lost) or self.session.position) // PAGE + 1

    def shorten(self, longest: int) -> None:
        """Let the next piece of a prompt have no more than so many tokens.

        They are whole pages of a long piece. Short ones may be cut anywhere, so that a piece has as
        many as it may, and not what a cut before it left over.
        """
        pieces = self.pieces
        kept = 1 if self.last_apart else 0
        while (
            len(pieces) > 1 + kept
            and pieces[0] < longest
            and max(pieces[0], pieces[1]) <= SHORT_STEP
        ):
            rest = pieces.popleft()
            pieces[0] += rest
        piece = pieces[0] if pieces else 0
        if piece > longest:
            pieces[0] = piece - longest
            pieces.appendleft(longest)

    def keep_last(self) -> None:
        """Let the last token of a prompt be a piece of its own: its answer begins with it."""
        self.last_apart = True
        if self.pieces[-1] > 1:
            self.pieces[-1] -= 1
            self.pieces.append(1)

    def next_part(self) -> Part:
        if self.lost:
            at = self.session.position
            return Part(self.session, self.lost[at : at + self.rows], [])
        if isinstance(self.request, Look):
            return self.session.part_of(self.request)
        tokens = self.request.tokens[self.fed : self.fed + self.rows]
        return Part(self.session, tokens, [len(tokens) - 1] if len(self.pieces) == 1 else [])

    def take(self, part: Part, logits: Array) -> bool:
        """Go on with a step's result; False when the text has ended."""
        if self.lost:
            self._found_again(part)
            return True
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

    def give_up_cache(self) -> None:
        """Free its part of the caches; the text is read again before it goes on.

        The prompt in the pieces in which it was read, the answer in short ones: both give the bits
        that the cache had.
        """
        session = self.session
        self.lost = self.lost or list(session.tokens)
        session.rewind(0)
        prompt = min(len(self.lost), len(self.generation.prompt))
        self.pieces = deque(session.pieces(prompt) if prompt else ())
        rest, most = len(self.lost) - prompt, min(SHORT_STEP, session.most_together)
        self.pieces.extend(min(most, rest - at) for at in range(0, rest, most))
        if not self.lost:
            self._ask_again()

    def _found_again(self, part: Part) -> None:
        self.session.tokens += part.tokens
        self.pieces.popleft()
        if not self.pieces:
            self.lost = []
            self._ask_again()

    def _ask_again(self) -> None:
        """Go on where the request was left; of a Feed, behind what is in the cache already."""
        if isinstance(self.request, Feed):
            left = len(self.request.tokens) - self.fed
            self.pieces = deque(self.session.pieces(left))
