"""Likeliest tokens that the CPU chooses itself, several to a call."""

from __future__ import annotations

import numpy as np
import pytest

import satchel
from satchel.llm.chain import ChainDecoder
from satchel.llm.sampling import Sampler, SamplingOptions
from satchel.llm.session import Session
from satchel.runtime.program import Program
from support.tiny_llm import write_tiny_llm

PROMPT = [3, 14, 15, 9, 26, 5, 35, 8, 9, 7] * 6
GREEDY = SamplingOptions(0.0)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    folder = tmp_path_factory.mktemp("chain")
    path = satchel.export(
        write_tiny_llm(folder / "tiny"), folder / "p.satchel", recipe="8da4w", context=96
    )
    return Program(path)


def test_a_chain_gives_the_tokens_of_single_steps(program: Program) -> None:
    """Over the end of a page of the cache, and to the end of the context."""
    alone, chained = Session(program), Session(program)
    token = int(alone.feed(PROMPT).argmax())
    assert int(chained.feed(PROMPT).argmax()) == token
    expected, last = [], token
    while alone.room:
        last = int(alone.feed([last]).argmax())
        expected.append(last)
    found = chained.chain(token, GREEDY, [0.0] * 100)
    assert found == expected and chained.tokens == alone.tokens and len(found) == 36
    with pytest.raises(satchel.SatchelError, match="fit"):
        chained.chain(found[-1], GREEDY, [0.0])


def test_chance_is_left_to_the_sampler(program: Program) -> None:
    session = Session(program)
    session.feed(PROMPT[:4])
    assert session.chain(5, SamplingOptions(0.7, top_k=0, top_p=1.0), [0.3, 0.3]) == []
    assert session.tokens == PROMPT[:4]
    drawn = satchel.LLM(program.path).generate(
        "a b c", max_new_tokens=4, temperature=0.7, top_k=0, top_p=1.0
    )
    assert len(list(drawn)) > 0 and drawn.stats.new_tokens == 4


def test_a_greedy_answer_is_made_in_chains(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And is the one that single steps give; what was computed behind its end is forgotten."""
    llm = satchel.LLM(program.path)
    plain = llm.generate("a b c", max_new_tokens=20, temperature=0, repetition_penalty=1.0001)
    chained = llm.generate("a b c", max_new_tokens=20, temperature=0, lookahead="off")
    made: list[int] = []
    steps = ChainDecoder.next

    def noted(self: ChainDecoder, token: int, limit: int) -> object:
        tokens = yield from steps(self, token, limit)
        made.append(len(tokens))
        return tokens

    monkeypatch.setattr(ChainDecoder, "next", noted)
    assert "".join(chained) == "".join(plain)
    assert sum(made) == 19 and max(made) > 1
    short = llm.generate(
        "a b c", max_new_tokens=20, temperature=0, lookahead="off", stop=chained.text[3:6]
    )
    assert "".join(short) == chained.text[: chained.text.index(chained.text[3:6])]
    again = llm.generate("a b c", max_new_tokens=20, temperature=0, lookahead="off")
    assert "".join(again) == chained.text


def test_logits_without_meaning_are_told(program: Program) -> None:
    sampler = Sampler(SamplingOptions(temperature=0))
    session = Session(program)
    session.feed(PROMPT[:4])
    decoder = ChainDecoder(session, sampler)
    steps = decoder.next(5, 4)
    next(steps)
    with pytest.raises(satchel.SatchelError, match="not finite"):
        steps.send(np.array([4, -1], np.int32))
