"""Several tokens to a call, chosen where the logits are."""

from __future__ import annotations

import time

from satchel.errors import ExecutionError
from satchel.llm.lookahead.decoder import LookaheadDecoder, PlainDecoder, lookahead_for
from satchel.llm.lookahead.options import LookaheadSizes
from satchel.llm.sampling import Sampler
from satchel.llm.session import Session
from satchel.llm.steps import Draw, Steps

_MOST = 32  # tokens of a call
_TOGETHER_S = 0.03  # how long a text may wait for its next piece


class ChainDecoder(PlainDecoder):
    """Each token is chosen where the logits are, and the next one computed, without waiting for
    the host; it looks for the end of the text after each call."""

    def __init__(self, session: Session, sampler: Sampler, off_because: str | None = None) -> None:
        how = "the chip chooses the tokens itself, several at a time"
        super().__init__(session, sampler, off_because or how)
        self._count = 1

    def next(self, token: int, limit: int) -> Steps[list[int]]:
        """Feed ``token``; the one to ``limit`` tokens after it. All but the last of these are
        in the cache already."""
        session, started = self._session, time.perf_counter()
        count = max(1, min(self._count, limit, session.room))
        sampler = self._sampler
        numbers = sampler.random_numbers(count)
        chosen = yield Draw(token, sampler.options, numbers, sampler.answer_from)
        tokens: list[int] = chosen.tolist()
        if not tokens:  # while shaders are timed, say, it chooses none
            return (yield from super().next(token, limit))
        sampler.spend_numbers(len(tokens))
        if min(tokens) < 0:
            raise ExecutionError(
                "The model gave logits that are not finite",
                "Its weights or recipe are broken: try `satchel verify`, or export with fp32",
            )
        seconds = time.perf_counter() - started
        self._count = max(1, min(_MOST, 2 * self._count, int(_TOGETHER_S * len(tokens) / seconds)))
        self.stats.plain_s += seconds
        self.stats.steps += len(tokens)
        self.stats.tokens += len(tokens)
        return tokens


def decoder_for(
    session: Session,
    sampler: Sampler,
    lookahead: str | None,
    sizes: LookaheadSizes | None,
    alone: bool,
) -> LookaheadDecoder | PlainDecoder:
    """How the tokens of an answer are found; one that is not ``alone`` takes part in runs with
    others.

    A grammar and a record of the logits need them on the host. A chip that chooses tokens of any
    kind does so, unless guesses are asked for; the CPU chooses the likeliest where there are none.
    """
    chip = session.instance
    chooses = chip.chooses_by_chance or (chip.chooses_tokens and sampler.options.is_plain)
    chooses &= not sampler.is_asked_for_each and (alone or chip.chooses_together)
    by_default = session.program.language_model.lookahead is not None
    guesses = lookahead == "on" or (lookahead is None and by_default)
    if chooses and chip.chooses_by_chance and not guesses:
        return ChainDecoder(session, sampler)
    decoder = lookahead_for(session, sampler, lookahead, sizes)
    if chooses and type(decoder) is PlainDecoder:
        return ChainDecoder(session, sampler, decoder.stats.off_because)
    return decoder
