"""Several generations at once: each is the one that it would be alone."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import satchel
from satchel import LLM
from satchel.errors import CacheFullError
from satchel.llm import batch as batch_module
from satchel.llm.batch import Batch
from satchel.llm.pace import Pace
from satchel.llm.session import Session
from satchel.llm.sessions import Sessions
from satchel.llm.steps import prompt_pieces
from satchel.program.names import SHORT_STEP
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


def test_short_texts_that_are_kept_do_not_hide_a_long_beginning(program: Path) -> None:
    """What an idle session has in common counts less than what a running one has."""
    llm = LLM(program)
    system = "You are a pirate and answer in rhymes. " * 6
    # Each is kept, and begins as the long ones do.
    llm.generate_many([f"You are {word}" for word in "abcd"], raw=True, max_new_tokens=2)
    together = llm.generate_many([f"{system}{i}" for i in range(4)], raw=True, max_new_tokens=2)
    reused = [generation.stats.reused_tokens for generation in together]
    assert reused[0] < 64 and min(reused[1:]) >= 192


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


def small_cache(program: Path, pages: int) -> LLM:
    """With memory for so many pages of all conversations together."""
    opened = Program(program)
    page = opened.instance(1).cache_usage.page_bytes
    llm = LLM(opened)
    instance = Instance(opened, 1, cache_memory=pages * page)
    llm.sessions = Sessions(Session(opened, instance=instance))
    return llm


def test_a_full_cache_is_shared_in_turns(program: Path) -> None:
    """Whoever began last gives its memory up, and is the same text in the end."""
    prompts = [letter * 90 for letter in "abcdef"]
    for options in ({"lookahead": "off"}, {"temperature": 1.0, "seed": 3}, {"lookahead": "on"}):
        given: dict[str, Any] = {"max_new_tokens": 120, **options}
        wanted = [alone(program, p, **given) for p in prompts]
        llm = small_cache(program, pages=9)  # each needs four in the end
        answers = Batch(llm.generate(p, raw=True, **given) for p in prompts).finish()
        assert [a.tokens for a in answers] == wanted


def test_one_that_fails_does_not_take_the_others_with_it(program: Path) -> None:
    llm = small_cache(program, pages=4)
    failures: list[Exception] = []
    batch = Batch(failed=lambda _generation, error: failures.append(error))
    short = llm.generate("ab", raw=True, max_new_tokens=20, lookahead="off")
    batch.add(short)
    batch.add(llm.generate("x" * 300, raw=True, max_new_tokens=20))
    batch.finish()
    assert short.tokens == alone(program, "ab", max_new_tokens=20, lookahead="off")
    assert [type(error) for error in failures] == [CacheFullError]
    assert llm.session.instance.cache_usage.pages <= 4
    with pytest.raises(CacheFullError):
        Batch([llm.generate("x" * 300, raw=True, max_new_tokens=20)]).finish()


def test_one_that_is_taken_out_gives_its_cache_back(program: Path) -> None:
    llm = small_cache(program, pages=8)
    batch = Batch(most=2)
    gone, stays, waits = (
        llm.generate(p, raw=True, max_new_tokens=30, lookahead="off")
        for p in ("a" * 200, "bc", "never")
    )
    for generation in (gone, stays, waits):
        batch.add(generation)
    for _ in range(5):
        batch.step()
    batch.remove(gone)
    batch.remove(waits)
    assert gone.session is None and waits.session is None
    batch.finish()
    assert stays.tokens == alone(program, "bc", max_new_tokens=30, lookahead="off")
    assert gone.stop_reason is None and not waits.tokens


def test_pieces_of_a_prompt_are_short_beside_answers(program: Path) -> None:
    """And the text is the one that long pieces give."""
    llm = LLM(program)
    batch = Batch()
    batch.longest_piece = 64
    answering = llm.generate("ab", raw=True, max_new_tokens=40, lookahead="off")
    batch.add(answering)
    batch.step()
    late = llm.generate("xyz" * 100, raw=True, max_new_tokens=5, lookahead="off")
    batch.add(late)
    steps = 0
    while not late.tokens:
        batch.step()
        steps += 1
    assert steps == 4 + 4  # a page, a step of the other; the last one with the rest of the prompt
    batch.finish()
    assert late.tokens == alone(program, "xyz" * 100, max_new_tokens=5, lookahead="off")


def test_few_guess_ahead_and_many_do_not(program: Path) -> None:
    llm = LLM(program)
    (alone_one,) = llm.generate_many(["ab" * 40], raw=True, max_new_tokens=60, lookahead="auto")
    assert alone_one.stats.lookahead.guessing_steps > 0
    prompts = [f"{number}{'ab' * 40}" for number in range(8)]
    crowd = llm.generate_many(prompts, raw=True, max_new_tokens=60, lookahead="auto")
    assert sum(g.stats.lookahead.guessing_steps for g in crowd) < 8


def test_programs_without_steps_of_many_tokens(tmp_path: Path) -> None:
    checkpoint = write_tiny_llm(tmp_path / "m")
    kv = satchel.export(checkpoint, tmp_path / "kv.satchel", context=64, mode="kv")
    answers = LLM(kv).generate_many(["ab", "cde", "f"], raw=True, max_new_tokens=6)
    wanted = [alone(kv, p, max_new_tokens=6, lookahead="off") for p in ("ab", "cde", "f")]
    assert [a.tokens for a in answers] == wanted


def test_nobody_waits_for_more_than_a_page_and_a_step(program: Path) -> None:
    """Prompts of all lengths come in while others answer; each step but one gives those a token."""
    llm = LLM(program)
    batch = Batch()
    batch.longest_piece = 64
    answering = [
        llm.generate(p, raw=True, max_new_tokens=60, lookahead="off") for p in ("ab", "cd", "ef")
    ]
    for generation in answering:
        batch.add(generation)
    batch.step()
    late = [("x" * 40, 5), ("y" * 63, 5), ("z" * 50, 5), ("w" * 200, 5), ("v" * 130, 5)]
    for prompt, most in late:
        batch.add(llm.generate(prompt, raw=True, max_new_tokens=most, lookahead="off"))
    waited, longest = 0, 0
    while active := [(g, len(g.tokens)) for g in answering if g.stop_reason is None]:
        batch.step()
        went_on = {g.stop_reason is not None or len(g.tokens) > n for g, n in active}
        assert len(went_on) == 1  # all of them, or none
        waited = 0 if went_on == {True} else waited + 1
        longest = max(longest, waited)
    assert longest == 1
    texts = [g.tokens for g in batch.finish()]
    prompts = [("ab", 60), ("cd", 60), ("ef", 60), *late]
    assert texts == [alone(program, p, max_new_tokens=n, lookahead="off") for p, n in prompts]


def test_a_full_step_leaves_nobody_out_for_long(program: Path) -> None:
    """More answers than a step has room for, and a prompt beside them."""
    llm = LLM(program)
    batch = Batch(most=100)
    prompts = [f"{number}" for number in range(70)]
    for prompt in [*prompts, "q" * 60]:
        batch.add(llm.generate(prompt, raw=True, max_new_tokens=6, lookahead="off"))
    steps = 0
    while batch.step():
        steps += 1
        assert steps < 40
    fresh = LLM(program)
    for generation, prompt in zip(batch.finish(), [*prompts, "q" * 60], strict=True):
        wanted = fresh.generate(prompt, raw=True, max_new_tokens=6, lookahead="off").finish()
        assert generation.tokens == wanted.tokens


@pytest.fixture
def timed_steps(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The tokens of each part of all steps, on a clock on which one takes 20 ms and 2 a token."""
    clock: list[float] = [0.0]
    steps: list[list[int]] = []
    run = batch_module.run_step

    def timed(parts: Any) -> Any:
        steps.append([len(part.tokens) for part in parts])
        clock[0] += 0.020 + 0.002 * sum(steps[-1])
        return run(parts)

    monkeypatch.setattr(batch_module, "run_step", timed)
    monkeypatch.setattr(batch_module.time, "perf_counter", lambda: clock[0])
    return steps


def test_a_step_beside_answers_takes_a_bounded_time(
    program: Path, timed_steps: list[list[int]]
) -> None:
    llm = LLM(program)
    llm.sessions.longest_piece = SHORT_STEP
    options: dict[str, Any] = {"raw": True, "max_new_tokens": 60, "lookahead": "off"}
    batch = Batch()
    batch.pace = Pace(stretch=2.0)
    answers = [llm.generate(p, **options) for p in ("ab", "q")]
    for answer in answers:
        batch.add(answer)
    while len(answers[1].tokens) < 10:
        batch.step()
    late = llm.generate("xyz" * 60, **options)
    batch.add(late)
    timed_steps.clear()
    while not late.tokens:
        batch.step()
    # Twice what a token of all three takes is 52 ms. All of it is used, but for the prompt's end.
    assert {sum(step) for step in timed_steps[:-1]} == {16}
    assert len(timed_steps) == -(-180 // 14)
    assert batch.finish()[2].tokens == alone(program, "xyz" * 60, max_new_tokens=60)


def test_prompts_that_wait_have_their_share_while_few_answer(
    program: Path, timed_steps: list[list[int]]
) -> None:
    """Ten questions at once: who answers first does not hold up the prompts of the others."""
    llm = LLM(program)
    llm.sessions.longest_piece = SHORT_STEP
    batch = Batch(most=10)
    batch.pace = Pace(stretch=2.0)
    first = llm.generate("ab" * 50, raw=True, max_new_tokens=60, lookahead="off")
    batch.add(first)
    while len(first.tokens) < 3:
        batch.step()
    timed_steps.clear()
    batch.add(llm.generate("cd" * 100, raw=True, max_new_tokens=5, lookahead="off"))
    batch.expected = 8  # as a server has them in its queue
    batch.step()
    assert timed_steps == [[1, 30]]  # three tokens for each conversation, 82 ms


def test_who_asks_together_is_answered_together(
    program: Path, timed_steps: list[list[int]]
) -> None:
    """Nobody's first tokens are slowed by other prompts, unless that takes long."""
    prompts = ["ab" * 50, "cd" * 60, "ef" * 70]
    for together in (2.0, 0.01):
        llm = LLM(program)
        llm.sessions.longest_piece = SHORT_STEP
        batch = Batch()
        batch.pace = Pace(stretch=2.0, together=together)
        batch.pace.record(1, 0.022)
        batch.pace.record(9, 0.038)
        for prompt in prompts:
            batch.add(llm.generate(prompt, raw=True, max_new_tokens=6, lookahead="off"))
        timed_steps.clear()
        answers = batch.finish()
        counts = [len(step) for step in timed_steps if max(step) == 1]
        if together > 1:
            assert counts == [3] * 6  # the prompts' last tokens, and five of each answer
            # Steps are full while prompts are read, but for the last.
            assert [sum(step) for step in timed_steps[:-6]] == [63] * 5 + [42]
        else:
            assert any(len(step) > 1 and min(step) == 1 < max(step) for step in timed_steps)
        for answer, prompt in zip(answers, prompts, strict=True):
            assert answer.tokens == alone(program, prompt, max_new_tokens=6)


def test_a_short_question_does_not_wait_for_a_long_text(program: Path) -> None:
    """And the long text is read on while short questions come and go."""
    llm = LLM(program)
    llm.sessions.longest_piece = SHORT_STEP
    options: dict[str, Any] = {"raw": True, "max_new_tokens": 4, "lookahead": "off"}
    batch = Batch()
    batch.pace = Pace(stretch=2.0)
    long = llm.generate("xyz" * 110, **options)
    batch.add(long)
    batch.step()
    shorts, steps = [], 0
    while not long.tokens:
        if not any(short.stop_reason is None for short in shorts):
            shorts.append(llm.generate(f"{len(shorts)} cd" * 10, **options))
            batch.add(shorts[-1])
        batch.step()
        steps += 1
        assert steps < 40
    assert len(shorts) > 2 and shorts[0].stop_reason is not None
    batch.finish()
    for answer, prompt in [(long, "xyz" * 110), (shorts[0], "0 cd" * 10)]:
        assert answer.tokens == alone(program, prompt, max_new_tokens=4, lookahead="off")


def test_who_shares_a_beginning_waits_for_that_and_not_for_the_rest(program: Path) -> None:
    llm = LLM(program)
    llm.sessions.longest_piece = SHORT_STEP
    batch = Batch()
    shared = "ab" * 64
    long = llm.generate(shared + "xyz" * 80, raw=True, max_new_tokens=4, lookahead="off")
    batch.add(long)
    batch.admit()
    short = llm.generate(shared + "q", raw=True, max_new_tokens=4, lookahead="off")
    other = llm.generate("cd" * 20, raw=True, max_new_tokens=4, lookahead="off")
    while not batch.begins(short):
        assert batch.begins(other)  # which shares nothing
        batch.step()
    assert not long.tokens
    batch.add(short)
    batch.finish()
    assert short.stats.reused_tokens == 128
    assert short.tokens == alone(program, shared + "q", max_new_tokens=4, lookahead="off")


def test_guesses_are_bounded_too(program: Path) -> None:
    llm = LLM(program)
    batch = Batch([llm.generate("abc" * 20, raw=True, max_new_tokens=40, lookahead="on")])
    batch.pace = Pace(guessing=0.0)
    batch.finish()
    (answer,) = batch.finish()
    # Once it is known what steps take there is room for one token in each.
    assert answer.stats.lookahead.guessing_steps <= 1
    assert answer.tokens == alone(program, "abc" * 20, max_new_tokens=40, lookahead="on")


def test_what_steps_take_is_learned() -> None:
    pace = Pace(stretch=2.0)
    assert pace.most(3, 3) == SHORT_STEP  # nothing is known
    for rows in (1, 3, 2, 5, 40, 9) * 5:
        pace.record(rows, 0.020 + 0.001 * rows)
    assert pace.most(4, 4) == pace.most(1, 4) == 28
    assert pace.most(40, 40) == SHORT_STEP
    pace.record(4, 10.0)  # something else had the processor
    assert 15 <= pace.most(4, 4) <= SHORT_STEP
    for _ in range(200):
        pace.record(4, 0.1)  # all steps are alike: more tokens are thought to cost more
    assert 8 <= pace.most(4, 4) <= 20


def test_sessions_of_which_none_is_kept(program: Path) -> None:
    sessions = (llm := LLM(program)).sessions
    sessions.most_idle = 0
    llm.generate("Hello!", raw=True, max_new_tokens=2).finish()  # and it ends
    assert sessions._idle == [sessions.first]
