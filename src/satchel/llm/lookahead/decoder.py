"""Lossless guessing: several tokens a step, and the text exactly the greedy one.

A step computes the last token together with guesses of what follows it. The model's own choice
after each token is then known as far as the guesses were right, and it is the choice that plain
decoding would have made, since a token's result is the same bits alone and in a block.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from satchel.errors import ConfigError
from satchel.llm.lookahead.costs import Chance, expected_tokens
from satchel.llm.lookahead.guesses import (
    LONGEST_GUESS,
    Guess,
    JacobiWindow,
    PromptLookup,
)
from satchel.llm.lookahead.options import MAX_ROWS, LookaheadSizes, check_mode
from satchel.llm.lookahead.tree import TokenTree
from satchel.llm.sampling import Sampler
from satchel.llm.session import Session
from satchel.llm.steps import Feed, Look, Steps

# How likely a guess is right by the length of its match, until it is known better.
_FIRST_CHANCE = {1: 0.4, 2: 0.6, 3: 0.75}
# Tokens a step that the window is thought to give; it begins to give them when its pool fills.
_FIRST_WINDOW_TOKENS = 1.7
_WINDOW_WARMUP = 8
_MARGIN = 1.03  # a step with guesses must promise so much more than a plain one


@dataclass
class LookaheadStats:
    """What guessing gave. A step is one run of the model; the prompt's is not counted."""

    mode: str = "off"
    off_because: str | None = None
    sizes: LookaheadSizes | None = None
    branches: bool = False  # whether several guesses are verified at once
    steps: int = 0
    guessing_steps: int = 0
    tokens: int = 0
    guessed: int = 0
    accepted: int = 0
    plain_s: float = 0.0  # of the steps without guesses

    @property
    def plain_tok_s(self) -> float | None:
        """How fast this text came where nothing was guessed."""
        plain_steps = self.steps - self.guessing_steps
        return plain_steps / self.plain_s if self.plain_s else None

    def to_dict(self, decode_tok_s: float) -> dict[str, Any]:
        plain = self.plain_tok_s
        return {
            "mode": self.mode,
            "off_because": self.off_because,
            **(self.sizes.to_dict() if self.sizes else dict.fromkeys(("ngram", "window", "gcap"))),
            "branches": self.branches,
            "steps": self.steps,
            "guessing_steps": self.guessing_steps,
            "tokens_per_step": self.tokens / self.steps if self.steps else None,
            "guessed": self.guessed,
            "accepted": self.accepted,
            "acceptance": self.accepted / self.guessed if self.guessed else None,
            "plain_tok_s": plain,
            "speedup": decode_tok_s / plain if plain and decode_tok_s else None,
        }


class PlainDecoder:
    """One token a step."""

    def __init__(self, session: Session, sampler: Sampler, off_because: str | None = None) -> None:
        self._session, self._sampler = session, sampler
        self.stats = LookaheadStats(off_because=off_because)

    def begin(self) -> None:
        """The prompt is in the cache."""

    def next(self, token: int, _limit: int) -> Steps[list[int]]:
        """Feed ``token``; the one after it."""
        chosen = yield from plain_step(self._session, self._sampler, token, self.stats)
        return [chosen]


def plain_step(session: Session, sampler: Sampler, token: int, stats: LookaheadStats) -> Steps[int]:
    started = time.perf_counter()
    logits = yield Feed([token])
    chosen = sampler.next(logits, session.words)
    stats.plain_s += time.perf_counter() - started
    stats.steps += 1
    stats.tokens += 1
    return chosen


class GuidedDecoder(PlainDecoder):
    """One token a step, and those that a grammar forces along with it."""

    _MOST_FORCED = 48  # with the token that they follow, a short step

    def next(self, token: int, limit: int) -> Steps[list[int]]:
        session, sampler = self._session, self._sampler
        room = min(limit - 1, session.room - 1, self._MOST_FORCED, session.most_together - 1)
        forced: list[int] = []
        if sampler.guide is not None and sampler.record is None:
            forced = sampler.guide.forced(room)
        if not forced or sampler.guide is None:
            return (yield from super().next(token, limit))
        logits = yield Feed([token, *forced])
        self.stats.steps += 1
        self.stats.tokens += len(forced)
        if sampler.guide.finished:  # there is nothing left to choose
            session.rewind(session.position - 1)
            return forced
        self.stats.tokens += 1
        return [*forced, sampler.next(logits, session.words)]


def lookahead_for(
    session: Session, sampler: Sampler, mode: str | None, sizes: LookaheadSizes | None
) -> LookaheadDecoder | PlainDecoder:
    """The decoder that was asked for, or a plain one that knows why.

    What is None comes from the program: exported with ``--mode lookahead`` it guesses always,
    else as long as it pays.
    """
    stored = LookaheadSizes.from_metadata(session.program.language_model.lookahead)
    mode = check_mode(mode or ("on" if stored else "auto"))
    if sampler.guide is not None:
        reason = "the text has a given form, and what that forces is not guessed"
        return GuidedDecoder(session, sampler, reason)
    if mode == "off":
        return PlainDecoder(session, sampler)
    if not sampler.options.greedy:
        reason = "only greedy text can be guessed without loss, and this is sampled"
        return PlainDecoder(session, sampler, reason)
    if not session.can_look_ahead:
        reason, wanted = f"{session.program.path} takes one token at a time", "hybrid"
        if session.instance.other_bits_in_blocks:
            reason, wanted = session.instance.other_bits_in_blocks, "lookahead"
        if mode == "on":
            raise ConfigError(
                f"there is no lookahead: {reason}", f"Export it with --mode {wanted}."
            )
        return PlainDecoder(session, sampler, reason)
    return LookaheadDecoder(session, sampler, mode, sizes or stored or LookaheadSizes())


class LookaheadDecoder:
    """Feeds the last token with guesses behind it, and gives the tokens that follow."""

    def __init__(
        self, session: Session, sampler: Sampler, mode: str, sizes: LookaheadSizes
    ) -> None:
        self._session, self._sampler, self._sizes = session, sampler, sizes
        self._always = mode == "on"
        self._lookup = PromptLookup()
        self._window: JacobiWindow | None = None
        self._chances = {m: Chance(p, 0.15, 0.02) for m, p in _FIRST_CHANCE.items()}
        self._window_tokens = Chance(_FIRST_WINDOW_TOKENS, 0.1, 0.001)
        self._window_steps = 0
        self.stats = LookaheadStats(mode, sizes=sizes, branches=session.can_branch)

    def begin(self) -> None:
        """The prompt is in the cache, and guesses can be made of it."""
        sizes, text = self._sizes, self._session.tokens
        self._lookup = PromptLookup(text)
        if sizes.window and self._session.can_branch:
            self._window = JacobiWindow(sizes.ngram, sizes.window, sizes.gcap, text)

    def next(self, token: int, limit: int) -> Steps[list[int]]:
        """Feed ``token``; the one to ``limit`` tokens after it. All but the last of these are
        in the cache already."""
        self._lookup.append(token)
        session = self._session
        most = min(session.room, limit, MAX_ROWS, session.most_rows, session.most_guessed)
        tree = TokenTree(token, max(1, most))
        guess, windowed = None, False
        # Not known what would pay, or no room for it beside others: then nothing is guessed.
        if self._always or (session.costs.measured(1) and not session.crowded):
            fits = tree.room > 0 and self._sizes.rows <= session.most_guessed
            windowed = self._window is not None and fits and self._window_pays()
            guess = self._guess(tree, windowed)
        if len(tree) == 1 and not windowed:
            chosen = yield from plain_step(session, self._sampler, token, self.stats)
            return [chosen]
        self.stats.guessed += len(tree) - 1
        tokens = yield from self._verify(tree, limit, guess, windowed)
        for chosen in tokens[:-1]:
            self._lookup.append(chosen)
        return tokens

    def _guess(self, tree: TokenTree, windowed: bool) -> Guess | None:
        """Put guesses into the step; the one of the text so far that is thought the best."""
        sizes = self._sizes
        others = sizes.gcap - 1 if windowed else 0
        longest = min(tree.room, LONGEST_GUESS)
        if windowed:  # the window and the pool's guesses need their room too
            taken = (sizes.ngram - 1) * (sizes.window + others)
            longest = min(longest, max(sizes.ngram - 1, MAX_ROWS - 1 - taken))
        found = list(self._lookup.guesses(longest)) if longest else []
        best = self._worth_it(found[0]) if found else None
        if best is not None:
            tree.add_path(best.tokens)
        if windowed and self._window is not None:
            pooled = self._window.candidates(tree.tokens[0])
            for tokens in [*pooled, *(g.tokens[: sizes.ngram - 1] for g in found[1:])][:others]:
                tree.add_path(tokens)
        return best

    def _worth_it(self, guess: Guess) -> Guess | None:
        """As much of a guess as promises to make the text faster."""
        if self._always:
            return guess
        chance, costs = self._chances[guess.match], self._session.costs
        gain, length = max(
            (expected_tokens(chance.value, n) / max(costs.seconds(n + 1), 1e-9), n)
            for n in range(1, len(guess.tokens) + 1)
        )
        if gain * costs.seconds(1) < _MARGIN:
            chance.declined()
            return None
        return Guess(guess.tokens[:length], guess.match)

    def _window_pays(self) -> bool:
        if self._always:
            return True
        costs = self._session.costs
        ratio = costs.seconds(self._sizes.rows) / max(costs.seconds(1), 1e-9)
        if self._window_tokens.value < ratio * _MARGIN:
            self._window_tokens.declined()
            return False
        return True

    def _verify(
        self, tree: TokenTree, limit: int, guess: Guess | None, windowed: bool
    ) -> Steps[list[int]]:
        session, stats = self._session, self.stats
        if windowed and self._window is not None:
            self._window.add_to(tree)
        wanted = sorted(tree.wanted)
        logits = yield Look(tree.tokens, tree.parents, wanted)
        rows = dict(zip(wanted, logits, strict=True))
        before = [*session.tokens, tree.tokens[0]]
        nodes, tokens = tree.accept(
            lambda node, path: self._sampler.next(rows[node], [*before, *path]), limit
        )
        session.accept(nodes, [tree.tokens[node] for node in nodes])
        stats.steps += 1
        stats.guessing_steps += 1
        stats.tokens += len(tokens)
        stats.accepted += len(nodes) - 1
        if guess is not None:
            self._judge(guess, tokens)
        if windowed and self._window is not None:
            choices = {node: int(np.argmax(rows[node])) for node in wanted}
            self._window.advance(choices, len(tokens))
            self._window_steps += 1
            if self._window_steps > _WINDOW_WARMUP:
                self._window_tokens.happened(len(tokens))
        return tokens

    def _judge(self, guess: Guess, tokens: list[int]) -> None:
        """Learn how often guesses of such a match are right, up to the first wrong one."""
        chance = self._chances[guess.match]
        for guessed, chosen in zip(guess.tokens, tokens, strict=False):
            chance.happened(1.0 if guessed == chosen else 0.0)
            if guessed != chosen:
                break
