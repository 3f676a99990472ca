"""The generation loop: tokens in, text out as it comes, and why it ended."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from satchel.errors import ConfigError, ContextFullError
from satchel.llm.chain import decoder_for
from satchel.llm.grammar import Grammar
from satchel.llm.lookahead.decoder import (
    LookaheadDecoder,
    LookaheadStats,
    PlainDecoder,
)
from satchel.llm.lookahead.options import LookaheadSizes
from satchel.llm.sampling import Sampler, SamplingOptions, TokenRecord
from satchel.llm.session import Session
from satchel.llm.sessions import Sessions
from satchel.llm.steps import Feed, RowSource, Steps
from satchel.llm.text_stream import TextStream
from satchel.llm.tokenizer import Tokenizer

CONTEXT_POLICIES = ("stop", "slide")


@dataclass
class GenerationStats:
    """Speeds of one generation. Tokens that were in the cache already are not counted."""

    prompt_tokens: int = 0
    reused_tokens: int = 0
    new_tokens: int = 0
    prefill_s: float = 0.0
    decode_s: float = 0.0
    ttft_s: float = 0.0
    slides: int = 0  # how often the oldest tokens were dropped
    cut_tokens: int = 0  # of a prompt longer than the context, those that were left out
    lookahead: LookaheadStats = field(default_factory=LookaheadStats)

    @property
    def prefill_tok_s(self) -> float:
        read = self.prompt_tokens - self.reused_tokens
        return read / self.prefill_s if self.prefill_s else 0.0

    @property
    def decode_tok_s(self) -> float:
        """The first token comes from the prefill, so it is not counted."""
        return (
            (self.new_tokens - 1) / self.decode_s if self.decode_s and self.new_tokens > 1 else 0.0
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "prompt_tokens": self.prompt_tokens,
            "reused_tokens": self.reused_tokens,
            "prefill_tok_s": self.prefill_tok_s,
            "decode_tok_s": self.decode_tok_s,
            "ttft_s": self.ttft_s,
            "context_slides": self.slides,
            "lookahead": self.lookahead.to_dict(self.decode_tok_s),
        }


class Generation:
    """Iterate over it for pieces of text as they come; then it holds the whole result.

    ``stop_reason`` is ``end_token``, ``stop_string``, ``max_new_tokens`` or ``context_full``,
    and None while the text is still being made.
    """

    def __init__(
        self,
        sessions: Sessions,
        tokenizer: Tokenizer,
        prompt: Sequence[int],
        sampling: SamplingOptions,
        max_new_tokens: int | None = None,
        stop: Sequence[str] = (),
        on_context_full: str = "stop",
        keep: int = 1,
        lookahead: str | None = None,
        lookahead_sizes: LookaheadSizes | None = None,
        logprobs: int | None = None,
        adapter: str | None = None,
        grammar: Grammar | None = None,
        shown: RowSource | None = None,
    ) -> None:
        if on_context_full not in CONTEXT_POLICIES:
            raise ConfigError(
                f"there is no way {on_context_full!r} to treat a full context",
                f"Choose {' or '.join(CONTEXT_POLICIES)}.",
            )
        if max_new_tokens is not None and max_new_tokens < 1:
            raise ConfigError(f"max_new_tokens must be at least 1, not {max_new_tokens}")
        if not prompt:
            raise ConfigError("the prompt is empty", "Give at least one character.")
        slides = on_context_full == "slide"
        if shown is not None:
            if slides:
                raise ConfigError("a prompt with images cannot slide", "Leave on_context_full out.")
            lookahead = "off"  # guesses are made of the text's tokens, and images have none
        whole = len(prompt)
        if whole > sessions.context:
            if not slides:
                raise ContextFullError(
                    f"the prompt has {len(prompt)} tokens, and the context {sessions.context}",
                    "Shorten it, export with a larger --context, or use --on-context-full slide.",
                )
            room = sessions.context - keep
            prompt = [*prompt[:keep], *prompt[-(room // 2 + room % 2) :]]
        self._sessions = sessions
        self._adapter = adapter or sessions.adapter
        self._sampler = Sampler(sampling)
        if logprobs is not None:
            self._sampler.record = TokenRecord(logprobs)
        if grammar is not None:
            self._sampler.guide = grammar.guide()
        self._prompt = list(prompt)
        self._most = max_new_tokens
        self._slides = slides
        self._keep = min(keep, len(prompt))
        words = [token for token in self._prompt if token >= 0]  # and not what stands for images
        self._sampler.answer_from = len(words)
        self._stream = TextStream(tokenizer, stop, after=words)
        self._tokenizer = tokenizer
        self.tokens: list[int] = []
        self.text = ""
        self.stop_reason: str | None = None
        cut = whole - len(self._prompt)
        self.stats = GenerationStats(prompt_tokens=len(self._prompt), cut_tokens=cut)
        self._shown = shown
        self._guessing = (lookahead, lookahead_sizes)
        self._alone = False  # whether nobody else takes part in its steps
        # What cannot be guessed is told here, and not in the middle of the text.
        self.stats.lookahead = self._decoder(sessions.first).stats
        self.session: Session | None = None  # while the text is being made
        self._new: list[str] = []
        self._pieces = self._run()

    def _decoder(self, session: Session) -> LookaheadDecoder | PlainDecoder:
        return decoder_for(session, self._sampler, *self._guessing, self._alone)

    def __repr__(self) -> str:
        state = self.stop_reason or "not finished"
        return f"<Generation of {len(self.tokens)} tokens, {state}: {self.text!r:.60}>"

    def __iter__(self) -> Iterator[str]:
        return self._pieces

    @property
    def prompt(self) -> Sequence[int]:
        """The tokens that it answers."""
        return self._prompt

    @property
    def stop_string(self) -> str | None:
        """The one of the stop strings that ended the text, if one did."""
        return self._stream.stop_string

    @property
    def logprobs(self) -> list[tuple[int, float, list[tuple[int, float]]]]:
        """Of each token: its id, ln of its probability, and the likeliest ones with theirs.

        Empty unless ``logprobs`` was given, which says how many of the likeliest are kept.
        """
        record = self._sampler.record
        return record.tokens[: len(self.tokens)] if record else []

    def finish(self) -> Generation:
        """Make the rest of the text, and return itself."""
        for _ in self._pieces:
            pass
        return self

    def _run(self) -> Iterator[str]:
        self._alone = True
        steps = self.steps()
        try:
            request = next(steps)
            while True:
                yield from self.take_pieces()
                assert self.session is not None
                request = steps.send(self.session.answer(request))
        except StopIteration:
            yield from self.take_pieces()

    def take_pieces(self) -> list[str]:
        """The text that has come since this was asked last."""
        pieces, self._new = self._new, []
        return pieces

    def steps(self) -> Steps[None]:
        """Asks for one step of the model after the other, until the text ends."""
        started = time.perf_counter()
        stats = self.stats
        # At least the last token is fed again: its logits are needed.
        session = self._sessions.take(self._prompt[:-1], self._adapter)
        try:
            self.session = session
            session.show(self._shown)
            stats.reused_tokens = session.position
            logits = yield Feed(self._prompt[session.position :])
            stats.prefill_s = time.perf_counter() - started
            tokens = [self._sampler.next(logits, session.words)]
            stats.ttft_s = time.perf_counter() - started
            decoder = self._decoder(session)
            stats.lookahead = decoder.stats
            decoder.begin()
            while self.stop_reason is None:
                for number, token in enumerate(tokens):
                    stats.decode_s = time.perf_counter() - started - stats.ttft_s
                    last = number + 1 == len(tokens)
                    self._take(token, last, full=last and session.room == 0)
                    if self.stop_reason:
                        # The cache holds tokens beyond this one if it was guessed.
                        session.rewind(session.position - (len(tokens) - 1 - number))
                        break
                else:
                    if session.room == 0:
                        kept = session.slide(self._keep)
                        answered = min(len(self.tokens) - 1, len(kept))  # the last is not fed yet
                        self._sampler.answer_from = self._keep + len(kept) - answered
                        yield Feed(kept)
                        stats.slides += 1
                    most = self._most - stats.new_tokens if self._most else session.context
                    tokens = yield from decoder.next(token, most)
            self._emit(self._stream.finish())
        finally:
            self.session = None
            session.show(None)
            self._sessions.give_back(session)

    def _take(self, token: int, last: bool, full: bool) -> None:
        """Add a token to the text, and find out whether the text ends with it.

        ``last`` is the last one that is known, which is where a grammar may be fulfilled.
        """
        if self._tokenizer.is_end(token):
            self.stop_reason = "end_token"
            return
        self.tokens.append(token)
        self.stats.new_tokens += 1
        self._emit(self._stream.push(token))
        if self._stream.stopped:
            self.stop_reason = "stop_string"
        elif last and self._sampler.guide is not None and self._sampler.guide.finished:
            self.stop_reason = "end_token"
        elif self.stats.new_tokens == self._most:
            self.stop_reason = "max_new_tokens"
        elif full and not self._slides:
            self.stop_reason = "context_full"

    def _emit(self, piece: str) -> None:
        if piece:
            self.text += piece
            self._new.append(piece)
