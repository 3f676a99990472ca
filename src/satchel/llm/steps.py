"""One run of the model: tokens of one conversation, or of several that share the weights' reading.

A step's tokens each have a sequence and a position, so that pieces of prompts, single tokens and
trees of guesses go together. A token's result is the same bits alone and in company, in steps of
up to ``SHORT_STEP`` (63) tokens; longer steps are for whole pages of one prompt, where kernels may
add up in another order (see docs/architecture.md).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from satchel._native import TokenRule
from satchel.errors import CacheFullError
from satchel.graph.ops.attention import tree_depths
from satchel.llm.sampling import SamplingOptions, token_rule
from satchel.program.names import PAGE
from satchel.runtime.program import Method

Array = NDArray[Any]


@dataclass(frozen=True)
class Feed:
    """Append tokens to the text; the answer are the logits after the last one, [vocab]."""

    tokens: Sequence[int]


@dataclass(frozen=True)
class Look:
    """The logits after ``rows`` of the tokens of a tree behind the text, [rows, vocab].

    ``parents`` says behind which of the tokens each one stands; -1 is the end of the text. Nothing
    is kept until :meth:`Session.accept` says what.
    """

    tokens: Sequence[int]
    parents: Sequence[int]
    rows: Sequence[int]


@dataclass(frozen=True)
class Draw:
    """Append a token and those that the chip chooses behind it, by a random number each; the answer
    are these, of which the last is not in the text yet. There may be fewer than numbers.

    The answer that penalties count begins at the word ``answer_from`` of the text."""

    token: int
    options: SamplingOptions
    random: Sequence[float]
    answer_from: int = 0

    @property
    def tokens(self) -> Sequence[int]:
        """Those of its first run."""
        return [self.token]


Request = Feed | Look | Draw
T = TypeVar("T")
# Asks for steps and is sent their logits; whoever runs them may run others' along with them.
Steps = Generator[Request, Array, T]


class RowSource(Protocol):
    """What stands for images in a prompt, by the numbers below zero that its rows have there."""

    def rows(self, numbers: Sequence[int]) -> Array:
        """Their embeddings, [n, hidden]."""

    def make_one(self, numbers: Sequence[int]) -> bool:
        """Do a part of the work that these need; False if all of it is done."""


class Conversation(Protocol):
    """What a step wants to know of a session."""

    sequence: int
    make_room: Callable[[], bool]
    tokens: list[int]

    @property
    def position(self) -> int: ...

    @property
    def room(self) -> int: ...

    @property
    def words(self) -> Sequence[int]: ...

    def method_for(self, tokens: int, trees: bool = False, shows: bool = False) -> Method: ...

    def embedded(self, tokens: Sequence[int]) -> Array: ...


@dataclass(frozen=True)
class Part:
    """Some tokens of one conversation in a step; logits are wanted of ``rows`` of them."""

    session: Conversation
    tokens: Sequence[int]
    rows: Sequence[int]
    parents: Sequence[int] | None = None

    @property
    def shows(self) -> bool:
        """Whether some of the tokens stand for a part of an image."""
        return min(self.tokens) < 0

    @property
    def is_line(self) -> bool:
        return self.parents is None or list(self.parents) == list(range(-1, len(self.tokens) - 1))


def run_step(parts: Sequence[Part]) -> list[Array]:
    """The logits of each part's rows, [rows, vocab]; all are of one instance and one adapter.

    Every method but that for single tokens gives one row at least, so a step needs one. A part
    that shows an image has a step of its own.
    """
    session, shows = parts[0].session, parts[0].shows
    method = session.method_for(
        sum(len(p.tokens) for p in parts), not all(p.is_line for p in parts), shows
    )
    # Lists of numbers, since numpy's calls for each of many short parts would take longer.
    columns: dict[str, list[int]] = {"tokens": [], "sequence": [], "position": [], "parents": []}
    rows: list[int] = []
    for part in parts:
        first, count, start = len(columns["tokens"]), len(part.tokens), part.session.position
        columns["tokens"] += part.tokens
        columns["sequence"] += [part.session.sequence] * count
        if part.parents is None:
            columns["position"] += range(start, start + count)
            columns["parents"] += [-1, *range(first, first + count - 1)]
        else:
            depths = tree_depths(np.asarray(part.parents)).tolist()
            columns["position"] += [start + depth for depth in depths]
            columns["parents"] += [-1 if p < 0 else first + p for p in part.parents]
        rows += [first + row for row in part.rows]
    columns["rows"] = rows or [0]
    given = [
        session.embedded(columns["tokens"])
        if name == "embedded"
        else np.array(columns[name], np.int32)
        for name in method.inputs
    ]
    (logits,) = run_with_room(method, given, session)
    results, at = [], 0
    for part in parts:
        results.append(logits[at : at + len(part.rows)])
        at += len(part.rows)
    return results


def run_draws(draws: Sequence[tuple[Conversation, Draw]]) -> list[Array]:
    """The tokens that each of them gets, as many for all; all are of one instance and adapter."""
    first = draws[0][0]
    method = first.method_for(len(draws))
    count = min(min(len(draw.random), session.room) for session, draw in draws)
    random = [[draw.random[run] for _, draw in draws] for run in range(count)]
    runs = with_room(
        lambda: method.run_chain(
            [draw.token for _, draw in draws],
            [session.position for session, _ in draws],
            [session.sequence for session, _ in draws],
            [_rule_of(session, draw) for session, draw in draws],
            random,
        ),
        first,
    )
    chosen = np.array(runs, np.int32).reshape(len(runs), len(draws)).T
    for (session, draw), own in zip(draws, chosen.tolist(), strict=True):
        if own:
            session.tokens += [draw.token, *own[:-1]]
    return list(chosen)


def _rule_of(session: Conversation, draw: Draw) -> TokenRule:
    text = [*session.words, draw.token] if draw.options.has_penalties else []
    return token_rule(draw.options, text, draw.answer_from)


def run_with_room(method: Method, given: Sequence[Array], session: Conversation) -> list[Array]:
    """Run a method; where the caches are full, room is made and it runs again."""
    return with_room(lambda: method.run(*given), session)


def with_room(run: Callable[[], T], session: Conversation) -> T:
    """What ``run`` gives; where the caches are full, room is made and it runs again."""
    while True:
        try:
            return run()
        except CacheFullError:  # before anything was written
            if not session.make_room():
                raise


def prompt_pieces(tokens: int, longest: int) -> Iterator[int]:
    """How many tokens of a prompt go into each step.

    Whole pages come first, in steps of up to ``longest`` tokens, and what is left in a short one:
    how a token is computed then depends on its place in the text alone, and not on how much of the
    text a cache held already.

    >>> list(prompt_pieces(600, 256)), list(prompt_pieces(40, 256)), list(prompt_pieces(5, 2))
    ([256, 256, 64, 24], [40], [2, 2, 1])
    """
    if longest >= PAGE:
        longest -= longest % PAGE
        while tokens >= PAGE:
            piece = min(longest, tokens - tokens % PAGE)
            yield piece
            tokens -= piece
    while tokens > 0:
        yield min(tokens, longest)
        tokens -= longest
