"""Where guesses come from: the text so far, and a window of Jacobi iterations ahead of it."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from satchel.llm.lookahead.tree import TokenTree

LONGEST_MATCH = 3  # tokens of the text's end that are looked up, and then fewer
LONGEST_GUESS = 10
_PLACES = 4  # of each n-gram, the latest so many places are remembered


@dataclass(frozen=True)
class Guess:
    tokens: tuple[int, ...]
    match: int  # how many tokens of the text's end were found again


class PromptLookup:
    """Guesses that the text goes on as it did where its end occurred before.

    >>> lookup = PromptLookup([5, 6, 7, 8, 5, 6])
    >>> next(lookup.guesses(2))
    Guess(tokens=(7, 8), match=2)
    """

    def __init__(self, tokens: Sequence[int] = ()) -> None:
        self._tokens: list[int] = []
        self._places: dict[tuple[int, ...], list[int]] = {}
        for token in tokens:
            self.append(token)

    def append(self, token: int) -> None:
        """The text goes on with this token."""
        at = len(self._tokens)
        for length in range(1, min(LONGEST_MATCH, at) + 1):
            places = self._places.setdefault(tuple(self._tokens[at - length :]), [])
            places.append(at)
            del places[:-_PLACES]
        self._tokens.append(token)

    def guesses(self, longest: int = LONGEST_GUESS) -> Iterator[Guess]:
        """Different ones, the longest match first, and of the same length the latest."""
        seen: set[tuple[int, ...]] = set()
        for length in range(min(LONGEST_MATCH, len(self._tokens)), 0, -1):
            for place in reversed(self._places.get(tuple(self._tokens[-length:]), [])):
                tokens = tuple(self._tokens[place : place + longest])
                if tokens and tokens not in seen:
                    seen.add(tokens)
                    yield Guess(tokens, length)


class JacobiWindow:
    """Works on the positions ahead side by side, as lookahead decoding does.

    ``levels[l][j]`` is a guess of the token l + j + 1 positions behind the last one, made from
    column j of the level before. Each step makes one more guess from the last level; with ngram - 1
    levels a column and its new guess are an n-gram, which goes into a pool by its first token.
    """

    def __init__(self, ngram: int, window: int, gcap: int, text: Sequence[int]) -> None:
        self._ngram, self._window, self._gcap = ngram, window, gcap
        # What is guessed at first does not matter, only that it is the same in every run.
        self._random = random.Random(0)
        self._text = list(dict.fromkeys(text))[-256:]
        self._levels = [self._some(window)]
        self._pool: dict[int, dict[tuple[int, ...], None]] = {}
        self._ends: list[int | None] = []

    def _some(self, count: int) -> list[int]:
        return self._random.choices(self._text, k=count)

    def candidates(self, token: int) -> list[tuple[int, ...]]:
        """The latest n-grams that begin with a token, without it."""
        return list(self._pool.get(token, {}))[::-1]

    def add_to(self, tree: TokenTree) -> None:
        """Put the window into a step. Columns that do not fit are left out of it."""
        self._ends = []
        node: int | None = 0
        for j in range(self._window):
            if node is None:
                self._ends.append(None)
                continue
            node = end = tree.add(node, self._levels[0][j], wanted=False)
            for level in self._levels[1:]:
                end = None if end is None else tree.add(end, level[j], wanted=False)
            if end is not None:
                tree.wanted.add(end)
            self._ends.append(end)

    def advance(self, choices: dict[int, int], steps: int) -> None:
        """Go on after a step: what the model chose after each node, and how many tokens the text
        grew by."""
        new = [choices[end] if end is not None else self._some(1)[0] for end in self._ends]
        if len(self._levels) == self._ngram - 1:
            for j, end in enumerate(self._ends):
                if end is not None:
                    first, *rest = [level[j] for level in self._levels]
                    self._remember(first, (*rest, new[j]))
            self._levels = [*self._levels[1:], new]
            shift = steps - 1
        else:
            self._levels.append(new)
            shift = steps
        shift = min(shift, self._window)
        if shift:
            self._levels = [level[shift:] + self._some(shift) for level in self._levels]

    def _remember(self, first: int, rest: tuple[int, ...]) -> None:
        grams = self._pool.setdefault(first, {})
        grams.pop(rest, None)
        grams[rest] = None  # the latest comes last
        if len(grams) > self._gcap:
            del grams[next(iter(grams))]
