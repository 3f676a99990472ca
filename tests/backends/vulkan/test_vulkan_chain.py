"""Tokens that the device chooses itself, several to a submission."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import satchel
from satchel._native import TokenRule
from satchel.errors import ConfigError, ExecutionError
from satchel.llm.batch import Batch
from satchel.llm.chain import ChainDecoder
from satchel.llm.sampling import Sampler, SamplingOptions
from satchel.llm.session import Session
from satchel.runtime.program import Method, Program
from support.tiny_llm import write_tiny_llm

PROMPT = [3, 14, 15, 9, 26, 5, 35, 8, 9, 7] * 24  # keys beyond it are in a second block of 256
GREEDY = SamplingOptions(0.0)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chain")
    return satchel.export(
        write_tiny_llm(folder / "tiny"),
        folder / "p.satchel",
        recipe="16a4w",
        context=290,
        prefill_ar_len=80,
    )


def one_by_one(session: Session, prompt: list[int], count: int, sampler: Sampler) -> list[int]:
    tokens = [sampler.next(session.feed(prompt))]
    while len(tokens) < count:
        tokens.append(sampler.next(session.feed(tokens[-1:])))
    return tokens


def in_chains(session: Session, prompt: list[int], count: int, sampler: Sampler) -> list[int]:
    tokens = [sampler.next(session.feed(prompt))]
    decoder = ChainDecoder(session, sampler)
    while len(tokens) < count:
        tokens += session.complete(decoder.next(tokens[-1], count - len(tokens)))
    return tokens


@pytest.mark.parametrize("temperature", [0.0, 0.7, 3.0])
def test_a_chain_gives_the_tokens_of_single_steps(
    temperature: float, program: Path, device: dict[str, Any]
) -> None:
    """The choice is numpy's, by the same random numbers; keys pass into another block."""
    options = SamplingOptions(temperature, top_k=0, top_p=1.0, seed=5)
    found = []
    for way in (one_by_one, in_chains):
        session = Session(Program(program, target="vulkan"))
        found.append(way(session, PROMPT, 40, Sampler(options)))
        assert session.tokens == [*PROMPT, *found[-1][:-1]]
    assert found[0] == found[1]
    assert temperature == 0 or len(set(found[0])) > 10


def test_a_chain_ends_with_the_context(program: Path, device: dict[str, Any]) -> None:
    session = Session(Program(program, target="vulkan"))
    token = int(session.feed([*PROMPT, *PROMPT[:44]]).argmax())
    chosen = session.chain(token, GREEDY, [0.0] * 32)
    assert len(chosen) == 6 and session.room == 0
    with pytest.raises(satchel.SatchelError, match="do not fit"):
        session.chain(chosen[-1], GREEDY, [0.0])


def test_plain_steps_and_chains_take_turns(program: Path, device: dict[str, Any]) -> None:
    session = Session(Program(program, target="vulkan"))
    first = session.feed(PROMPT[:20])
    chosen = session.chain(int(first.argmax()), GREEDY, [0.0] * 3)
    after = session.feed(chosen[-1:])
    again = Session(session.program, instance=session.instance)
    again.feed(PROMPT[:20])
    for token in (int(first.argmax()), *chosen):
        logits = again.feed([token])
    np.testing.assert_array_equal(logits, after)


def test_a_text_is_the_cpus_and_ends_where_it_should(program: Path, device: dict[str, Any]) -> None:
    texts, stats = [], []
    for target in ("cpu", "vulkan"):
        llm = satchel.LLM(Program(program, target=target))
        generation = llm.generate("hi there", max_new_tokens=23, temperature=0).finish()
        assert len(generation.tokens) <= 23
        texts.append(generation.text)
        stats.append(generation.stats.lookahead)
    assert texts[0] == texts[1]
    assert "chooses the tokens" in str(stats[1].off_because)


def test_answers_that_share_runs_are_those_of_the_cpu(
    program: Path, device: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of several lengths, temperatures and seeds, beside one whose logits the host is to see."""
    wanted: list[dict[str, Any]] = [
        {"temperature": 0.0, "max_new_tokens": 9},
        {"temperature": 0.7, "max_new_tokens": 31, "seed": 3},
        {"temperature": 0.9, "max_new_tokens": 20, "seed": 4, "logprobs": 1},
        {"temperature": 1.5, "max_new_tokens": 40, "seed": 5},
        {"temperature": 0.0, "max_new_tokens": 33},
    ]
    prompts = ["hi there", "a" * 70, "hello", "some words", "more of them"]

    def generations(llm: satchel.LLM) -> list[Any]:
        return [
            llm.generate(prompt, **{"top_k": 0, "top_p": 1.0, **options})
            for prompt, options in zip(prompts, wanted, strict=True)
        ]

    want = [g.finish() for g in generations(satchel.LLM(Program(program, target="cpu")))]
    shared = []
    run_chain = Method.run_chain

    def counted(method: Method, tokens: Any, *arguments: Any) -> list[list[int]]:
        runs = run_chain(method, tokens, *arguments)
        shared.append((len(tokens), len(runs)))
        return runs

    monkeypatch.setattr(Method, "run_chain", counted)
    monkeypatch.setattr("satchel.llm.chain._TOGETHER_S", 1e3)  # however slow the device is
    got = Batch(generations(satchel.LLM(Program(program, target="vulkan")))).finish()
    assert [g.tokens for g in got] == [w.tokens for w in want]
    assert [g.stop_reason for g in got] == [w.stop_reason for w in want]
    assert max(count for count, _ in shared) == 4, shared
    assert max(runs for _, runs in shared) > 4, shared
    reasons = [str(g.stats.lookahead.off_because) for g in got]
    assert ["chooses the tokens" in r for r in reasons] == [True, True, False, True, True]


def test_chains_of_many_need_a_place_for_each(program: Path, device: dict[str, Any]) -> None:
    method = Program(program, target="vulkan").instance().method("prefill_forward")
    with pytest.raises(ExecutionError, match="for each token"):
        method.run_chain([1, 2], [0], [0, 0], [TokenRule()] * 2, [[0.0, 0.0]])


def test_what_the_host_must_choose_is_not_chained(program: Path, device: dict[str, Any]) -> None:
    llm = satchel.LLM(program, target="vulkan")
    chained = llm.generate("hi there", max_new_tokens=3, repetition_penalty=1.2)
    assert "chooses the tokens" in str(chained.finish().stats.lookahead.off_because)
    seen = llm.generate("hi there", max_new_tokens=3, logprobs=2)
    assert "chooses the tokens" not in str(seen.finish().stats.lookahead.off_because)


def test_while_shaders_are_timed_the_host_chooses(
    program: Path,
    device: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    llm = satchel.LLM(program, target="vulkan")
    alone = llm.generate("hi there", max_new_tokens=5, repetition_penalty=1.2).finish()
    monkeypatch.setenv("SATCHEL_VULKAN_TIMES", "1")
    timed = llm.generate("hi there", max_new_tokens=5, repetition_penalty=1.2).finish()
    assert timed.tokens == alone.tokens
    assert "kv_forward" in capfd.readouterr().err


def test_logits_without_a_meaning_are_an_error(device: dict[str, Any], tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    folder = write_tiny_llm(tmp_path / "tiny")
    (file,) = folder.glob("*.safetensors")
    tensors = load_file(file)
    name = next(n for n in tensors if n.endswith("norm.weight") and "layers" not in n)
    tensors[name] = np.full_like(tensors[name], 3e38)  # finite, unlike what comes of it
    save_file(tensors, file)
    path = satchel.export(folder, tmp_path / "p.satchel", recipe="fp32", context=32)
    session = Session(Program(path, target="vulkan"))
    session.feed([3])
    sampler = Sampler(SamplingOptions(0.0))
    with pytest.raises(ExecutionError, match="not finite"):
        session.complete(ChainDecoder(session, sampler).next(5, 4))


def test_a_target_is_for_files_and_not_for_what_is_open(program: Path) -> None:
    opened = Program(program, target="cpu")
    assert satchel.LLM(opened, target="cpu").program is opened
    with pytest.raises(ConfigError, match="open for cpu already, and not for vulkan"):
        satchel.LLM(opened, target="vulkan")
