"""Several generations at once: each is the one that it would be alone."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import satchel
from satchel import LLM
from satchel.errors import CacheFullError
from satchel.llm.batch import Batch
from satchel.llm.session import Session
from satchel.llm.sessions import Sessions
from satchel.llm.steps import prompt_pieces
from satchel.runtime.program import Instance, Program
from support.tiny_llm import write_tiny_llm

PROMPTS = ["ab", "abc" * 30, "xyz" * 50, "q", "hello there " * 12, "abc" * 31]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("batch")
    checkpoint = write_tiny_llm(folder / "m", max_position_embeddings=512)
    return satchel.export(checkpoint, folder / "m.satchel", context=400, prefill_ar_len=128)


def alone(program: Path, prompt: str, **options: Any) -> list[int]:
    return LLM(program).generate(prompt, raw=True, **options).finish().tokens


def test_answers_together_are_those_alone(program: Path) -> None:
    options = {"max_new_tokens": 20, "lookahead": "off"}
    together = LLM(program).generate_many(PROMPTS, raw=True, **options)
    assert [g.tokens for g in together] == [alone(program, p, **options) for p in PROMPTS]
    assert [g.stop_reason for g in together] == ["max_new_tokens"] * len(PROMPTS)


def test_seeds_and_lookahead_together(program: Path) -> None:
    for options in ({"temperature": 1.0, "seed": 7}, {"lookahead": "on"}):
        given: dict[str, Any] = {"max_new_tokens": 12, **options}
        together = LLM(program).generate_many(PROMPTS, raw=True, **given)
        assert [g.tokens for g in together] == [alone(program, p, **given) for p in PROMPTS]


def test_a_common_beginning_is_computed_and_kept_once(program: Path) -> None:
    system = "You are a pirate and answer in rhymes. " * 6  # some 230 tokens
    prompts = [f"{system}{i}?" for i in range(8)]
    llm = LLM(program)
    answers = llm.generate_many(prompts, raw=True, max_new_tokens=8, lookahead="off")
    assert [a.stats.reused_tokens for a in answers] == [0] + [192] * 7
    assert [a.tokens for a in answers] == [
        alone(program, p, max_new_tokens=8, lookahead="off") for p in prompts
    ]
    # Three pages of all, and one or two of each one's own.
    assert llm.session.instance.cache_usage.pages <= 3 + 8 * 2


def test_two_generations_at_once_do_not_disturb_each_other(program: Path) -> None:
    llm = LLM(program)
    wanted = [alone(program, p, max_new_tokens=15, lookahead="off") for p in PROMPTS[:2]]
    first, second = (
        llm.generate(p, raw=True, max_new_tokens=15, lookahead="off") for p in PROMPTS[:2]
    )
    pieces = [iter(first), iter(second)]
    while pieces:
        pieces = [each for each in pieces if next(each, None) is not None]
    assert [first.tokens, second.tokens] == wanted


def test_generations_in_two_threads(program: Path) -> None:
    llm = LLM(program)
    wanted = [alone(program, p, max_new_tokens=15) for p in PROMPTS]
    made: dict[int, list[int]] = {}

    def work(number: int) -> None:
        answer = llm.generate(PROMPTS[number], raw=True, max_new_tokens=15).finish()
        made[number] = answer.tokens

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(PROMPTS))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [made[i] for i in range(len(PROMPTS))] == wanted


def test_a_full_cache_drops_what_is_kept_for_later(program: Path) -> None:
    opened = Program(program)
    page = opened.instance(1).cache_usage.page_bytes
    instance = Instance(opened, 1, cache_memory=4 * page)
    llm = LLM(opened)
    llm.sessions = Sessions(Session(opened, instance=instance))
    for number in range(5):  # each leaves two pages behind
        llm.generate(f"{number}" * 90, raw=True, max_new_tokens=4).finish()
    assert instance.cache_usage.pages <= 4
    with pytest.raises(CacheFullError):
        llm.generate("a" * 300, raw=True, max_new_tokens=4).finish()
    assert llm.generate("b", raw=True, max_new_tokens=4).finish().tokens


def test_more_than_run_at_a_time(program: Path) -> None:
    llm = LLM(program)
    batch = Batch(most=2)
    for prompt in PROMPTS:
        batch.add(llm.generate(prompt, raw=True, max_new_tokens=5, lookahead="off"))
    while batch.step():
        assert llm.session.instance.cache_usage.sequences <= 2 + 16 + 1
    assert all(g.stop_reason for g in batch.finish())


def test_an_abandoned_generation_gives_its_cache_back(program: Path) -> None:
    llm = LLM(program)
    usage = llm.session.instance
    for _ in range(40):
        next(iter(llm.generate("abc", raw=True, max_new_tokens=50)))
    assert usage.cache_usage.sequences <= 18


@pytest.mark.parametrize("tokens", [1, 63, 64, 65, 127, 128, 200, 256, 300])
def test_a_prompt_has_the_same_bits_whatever_of_it_was_cached(program: Path, tokens: int) -> None:
    """Whole pages are computed alike in steps of any length."""
    opened = Program(program)
    text = [(7 * i * i + 3) % 250 for i in range(tokens)]
    whole = Session(opened)
    wanted = whole.feed(text)
    for cached in range(64, tokens, 64):
        other = whole.fork(cached)
        assert (other.feed(text[cached:]) == wanted).all()


def test_pieces_of_a_prompt() -> None:
    assert list(prompt_pieces(300, 128)) == [128, 128, 44]
    assert list(prompt_pieces(64, 128)) == [64]
    assert list(prompt_pieces(7, 128)) == [7]
    assert list(prompt_pieces(300, 100)) == [64, 64, 64, 64, 44]
    assert list(prompt_pieces(3, 1)) == [1, 1, 1]
