"""How likely the tokens of a prompt are to the model, each behind those before it."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from satchel.llm.sampling import TokenRecord
from satchel.llm.sessions import Sessions

LogProb = tuple[int, float, list[tuple[int, float]]]


def prompt_logprobs(
    sessions: Sessions, tokens: Sequence[int], top: int, adapter: str | None = None
) -> Generator[None, None, list[LogProb]]:
    """Of every token but the first: ln of its probability, and the ``top`` likeliest in its place.

    One step of the model is made each time that it goes on.
    """
    record = TokenRecord(top)
    if len(tokens) < 2:
        return record.tokens
    session = sessions.apart(adapter)
    try:
        following = iter(tokens[1:])
        for logits in session.logits_of(tokens[:-1]):
            for row in logits:
                record.add(next(following), row)
            yield
    finally:
        session.close()
    return record.tokens
