"""Several tokens to a call of a chip that chooses them itself."""

from __future__ import annotations

import time

from satchel.errors import ExecutionError
from satchel.llm.lookahead.decoder import PlainDecoder
from satchel.llm.sampling import Sampler
from satchel.llm.session import Session
from satchel.llm.steps import Draw, Steps

_MOST = 32  # tokens of a call
_TOGETHER_S = 0.03  # how long a text may wait for its next piece


class ChainDecoder(PlainDecoder):
    """Each token is chosen where the logits are, and the next one computed, without waiting for
    the host; it looks for the end of the text after each call."""

    def __init__(self, session: Session, sampler: Sampler) -> None:
        super().__init__(session, sampler, "the chip chooses the tokens itself, several at a time")
        self._count = 1

    def next(self, token: int, limit: int) -> Steps[list[int]]:
        """Feed ``token``; the one to ``limit`` tokens after it. All but the last of these are
        in the cache already."""
        session, started = self._session, time.perf_counter()
        count = max(1, min(self._count, limit, session.room))
        temperature = self._sampler.options.temperature
        numbers = self._sampler.random_numbers(count)
        chosen = yield Draw(token, temperature, numbers)
        tokens: list[int] = chosen.tolist()
        self._sampler.spend_numbers(len(tokens))
        if min(tokens, default=-1) < 0:
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


def chain_for(
    session: Session, sampler: Sampler, mode: str | None, alone: bool
) -> ChainDecoder | None:
    """A decoder for chips that choose tokens, unless guesses are asked for or the choice needs the
    host: penalties, a grammar, a share of the likeliest tokens. One that is not ``alone`` takes
    part in runs with others."""
    if mode == "on" or (mode is None and session.program.language_model.lookahead):
        return None
    chip = session.instance
    chooses = chip.chooses_tokens and (alone or chip.chooses_together)
    if not chooses or not sampler.needs_logits_only:
        return None
    return ChainDecoder(session, sampler)
