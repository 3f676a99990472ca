"""Tokens that the device chooses by penalties, biases, top-k, top-p and min-p: the host's, of the
same logits and random numbers."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import satchel
from backends.vulkan.choices import disagreements
from satchel.backends.vulkan import VulkanInstance
from satchel.llm.batch import Batch
from satchel.llm.chain import ChainDecoder
from satchel.llm.sampling import Sampler, SamplingOptions, token_rule
from satchel.llm.session import Session
from satchel.runtime.method import Method
from satchel.runtime.program import Program
from support.tiny_llm import write_tiny_llm

PROMPT = [3, 14, 15, 9, 26, 5, 35, 8, 9, 7] * 3
WHOLE: dict[str, Any] = {"top_k": 0, "top_p": 1.0}
SIZES: dict[str, Any] = {"context": 160, "prefill_ar_len": 80}
VOCABULARY = 5000  # five blocks, the last of them not full


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    folder = tmp_path_factory.mktemp("choice")
    tiny = write_tiny_llm(folder / "tiny", vocab_size=VOCABULARY)
    path = satchel.export(tiny, folder / "p.satchel", recipe="16a4w", **SIZES)
    return Program(path, target="vulkan")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Program:
    """Says the same tokens again."""
    folder = tmp_path_factory.mktemp("small")
    tiny = write_tiny_llm(folder / "tiny")
    path = satchel.export(tiny, folder / "p.satchel", recipe="16a4w", **SIZES)
    return Program(path, target="vulkan")


def write_tied(folder: Path, vocabulary: int) -> Path:
    """A program in which every 250th token has the same logits."""
    tiny = write_tiny_llm(folder / "tiny", vocab_size=vocabulary)
    (file,) = tiny.glob("*.safetensors")
    tensors = load_file(file)
    words = tensors["model.embed_tokens.weight"]
    tensors["model.embed_tokens.weight"] = words[np.arange(vocabulary) % 250].copy()
    save_file(tensors, file)
    return satchel.export(tiny, folder / "p.satchel", recipe="fp32", **SIZES)


@pytest.fixture(scope="module")
def tied(tmp_path_factory: pytest.TempPathFactory) -> Program:
    return Program(write_tied(tmp_path_factory.mktemp("tied"), VOCABULARY), target="vulkan")


def chosen(program: Program, options: SamplingOptions, count: int, chained: bool) -> list[int]:
    """The tokens of an answer, and what was in the cache is checked."""
    session, sampler = Session(program, instance=instance_of(program)), Sampler(options)
    sampler.answer_from = len(PROMPT)
    logits = session.feed(PROMPT)
    tokens = [sampler.next(logits, session.words)]
    decoder = ChainDecoder(session, sampler)
    while len(tokens) < count:
        if chained:
            tokens += session.complete(decoder.next(tokens[-1], count - len(tokens)))
        else:
            logits = session.feed(tokens[-1:])
            tokens.append(sampler.next(logits, session.words))
    assert session.tokens == [*PROMPT, *tokens[:-1]]
    session.close()
    return tokens


_instances: dict[Path, Any] = {}


def instance_of(program: Program) -> Any:
    return _instances.setdefault(Path(program.path), program.instance())


def check(program: Program, options: SamplingOptions, count: int = 40) -> list[int]:
    alone, chained = (chosen(program, options, count, way) for way in (False, True))
    assert alone == chained, options.describe()
    return chained


@pytest.mark.parametrize(
    "penalties",
    [
        {"repetition_penalty": 1.05},
        {"repetition_penalty": 2.0},
        {"repetition_penalty": 0.9},
        {"frequency_penalty": 0.7},
        {"presence_penalty": 1.5},
        {"frequency_penalty": -0.25, "presence_penalty": 0.5, "repetition_penalty": 1.1},
    ],
    ids=str,
)
@pytest.mark.parametrize("temperature", [0.0, 0.5])
def test_what_the_text_has_had_counts(
    penalties: dict[str, Any], temperature: float, small: Program, device: dict[str, Any]
) -> None:
    """It makes other answers of it, whether the tokens are of this chain or were there before."""
    plain = SamplingOptions(temperature, **WHOLE, seed=3)
    assert check(small, plain.changed(**penalties), 80) != check(small, plain, 80)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_biases(temperature: float, program: Program, device: dict[str, Any]) -> None:
    options = SamplingOptions(temperature, **WHOLE, seed=3)
    assert set(check(program, options.changed(logit_bias={4097: 100.0}))) == {4097}
    bias = {7: 30.0, 4999: 29.0, 1024: -100.0, 1023: 28.0}
    drawn = check(program, options.changed(logit_bias=bias, frequency_penalty=2.0))
    assert len(set(drawn)) >= 3 and {7, 4999, 1023} < {*drawn, 0}


@pytest.mark.parametrize("temperature", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("top_k", [1, 40, 1500, 5000])
def test_the_likeliest_so_many(
    top_k: int, temperature: float, program: Program, device: dict[str, Any]
) -> None:
    options = SamplingOptions(temperature, top_k=top_k, top_p=1.0, seed=top_k)
    tokens = check(program, options)
    assert top_k > 1 or tokens == check(program, SamplingOptions(0.0, **WHOLE))


@pytest.mark.parametrize("temperature", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("top_p", [1e-6, 0.5, 0.9, 0.9999])
def test_a_share_of_the_likeliest(
    top_p: float, temperature: float, program: Program, device: dict[str, Any]
) -> None:
    check(program, SamplingOptions(temperature, top_k=0, top_p=top_p, seed=11))


@pytest.mark.parametrize("temperature", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("min_p", [1e-4, 0.1, 1.0])
def test_no_less_likely_than_a_share_of_the_likeliest(
    min_p: float, temperature: float, program: Program, device: dict[str, Any]
) -> None:
    options = SamplingOptions(temperature, **WHOLE, min_p=min_p, seed=12)
    tokens = check(program, options)
    assert min_p < 1 or tokens == check(program, SamplingOptions(0.0, **WHOLE))


@pytest.mark.parametrize("temperature", [1e-3, 0.7, 1.5, 100.0])
def test_all_of_them_together(temperature: float, program: Program, device: dict[str, Any]) -> None:
    given = itertools.product([50, 1100], [0.5, 0.95], [0.0, 0.1], [1.0, 1.3])
    for seed, (top_k, top_p, min_p, repetition) in enumerate(given):
        options = SamplingOptions(
            temperature, top_k, top_p, min_p, repetition, seed, 0.6, logit_bias={3: 2.5}
        )
        check(program, options, 9)


@pytest.mark.parametrize(
    "limits",
    [
        {"top_k": 7, "top_p": 1.0},
        {"top_k": 33, "top_p": 0.4},
        {"top_k": 0, "top_p": 0.013},
        {"top_k": 0, "top_p": 0.37},
        {"top_k": 0, "top_p": 0.9},
        {"top_k": 0, "top_p": 0.61, "min_p": 0.3},
        {"top_k": 0, "top_p": 1.0, "min_p": 1.0},
    ],
    ids=str,
)
@pytest.mark.parametrize("temperature", [0.5, 3.0])
def test_equal_logits_on_the_edge_are_treated_as_the_host_does(
    limits: dict[str, Any], temperature: float, tied: Program, device: dict[str, Any]
) -> None:
    """Twenty of each: all of them stay by top-k, those with the highest numbers by top-p."""
    drawn = check(tied, SamplingOptions(temperature, **limits, seed=5), 100)
    assert len(set(drawn)) > 1


def test_a_penalty_moves_one_of_equal_logits(tied: Program, device: dict[str, Any]) -> None:
    check(tied, SamplingOptions(1.0, top_k=25, top_p=0.8, repetition_penalty=1.4, seed=2), 80)
    check(tied, SamplingOptions(0.0, repetition_penalty=1.4), 80)


def test_each_way_agrees_with_the_host(tied: Program, device: dict[str, Any]) -> None:
    """By random numbers at the edges too, of logits that the host has."""
    assert disagreements(tied.path) == []


def test_sequences_together_have_rules_of_their_own(
    program: Program, device: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted: list[dict[str, Any]] = [
        {"temperature": 0.0},
        {"temperature": 0.0, "repetition_penalty": 1.2},
        {"temperature": 0.7, "seed": 3},
        {"temperature": 0.9, "seed": 4, "top_k": 5},
        {"temperature": 1.5, "seed": 5, "top_p": 0.8, "frequency_penalty": 0.6},
        {"temperature": 1.1, "seed": 6, "min_p": 0.1, "logit_bias": {9: 5.0}},
        {"temperature": 0.0, "presence_penalty": 1.0},
    ]
    prompts = ["hi there", "a" * 70, "hello", "some words", "more of them", "x", "the last one"]
    lengths = [9, 40, 31, 20, 40, 33, 12]

    def generations(llm: satchel.LLM) -> list[Any]:
        return [
            llm.generate(prompt, **{**WHOLE, **options}, max_new_tokens=length)
            for prompt, options, length in zip(prompts, wanted, lengths, strict=True)
        ]

    with monkeypatch.context() as host:
        host.setattr(VulkanInstance, "on", lambda instance, *_: instance)  # which cannot choose
        by_host = Program(program.path, target="vulkan")
        want = Batch(generations(satchel.LLM(by_host))).finish()
    shared: list[tuple[int, int]] = []
    run_chain = Method.run_chain

    def counted(method: Method, tokens: Any, *arguments: Any) -> list[list[int]]:
        runs = run_chain(method, tokens, *arguments)
        shared.append((len(tokens), len(runs)))
        return runs

    monkeypatch.setattr(Method, "run_chain", counted)
    monkeypatch.setattr("satchel.llm.chain._TOGETHER_S", 1e3)  # however slow the device is
    got = Batch(generations(satchel.LLM(Program(program.path, target="vulkan")))).finish()
    assert [g.tokens for g in got] == [w.tokens for w in want]
    assert max(count for count, _ in shared) == len(wanted)
    assert max(runs for _, runs in shared) > 4


def test_the_answer_begins_where_it_did_when_the_text_slides(
    program: Program, device: dict[str, Any]
) -> None:
    texts = []
    for target in ("cpu", "vulkan"):
        llm = satchel.LLM(Program(program.path, target=target))
        generation = llm.generate(
            "a" * 60,
            max_new_tokens=200,
            temperature=0,
            frequency_penalty=0.5,
            repetition_penalty=1.1,
            on_context_full="slide",
        ).finish()
        assert generation.stats.slides > 0
        texts.append(generation.tokens)
    assert texts[0] == texts[1]


def test_kinds_of_choice_take_turns(program: Program, device: dict[str, Any]) -> None:
    """Each needs other commands, in one method of one instance."""
    session = Session(program, instance=instance_of(program))
    session.feed(PROMPT)
    kinds = [
        SamplingOptions(0.0),
        SamplingOptions(0.0, repetition_penalty=1.3),
        SamplingOptions(0.9, top_k=4, top_p=1.0),
        SamplingOptions(0.9, **WHOLE),
        SamplingOptions(0.9, top_k=9, top_p=0.7, presence_penalty=0.4),
    ]
    found: dict[int, list[int]] = {}
    for number in (0, 1, 2, 3, 4, 2, 0, 4, 1, 3):
        session.rewind(len(PROMPT))
        tokens = session.chain(7, kinds[number], [0.3, 0.8, 0.5], len(PROMPT))
        assert found.setdefault(number, tokens) == tokens
    session.close()


def test_a_long_text_has_room(program: Program, device: dict[str, Any]) -> None:
    """What penalties look back on outgrows the first place for it; a token that is none is left."""
    method = instance_of(program).method("kv_forward")
    sequence = instance_of(program).open_sequence()
    text = [*range(100, 4000), VOCABULARY + 5]
    options = SamplingOptions(0.0, presence_penalty=2.0)
    logits = np.array(method.run(*(np.array([n], np.int32) for n in (5, 0, sequence)))[0][0])
    for count in (10, len(text)):
        held = text[:count]
        instance_of(program).truncate_sequence(sequence, 0)
        ((token,),) = method.run_chain([5], [0], [sequence], [token_rule(options, held)], [[0.0]])
        penalized = logits.copy()
        penalized[[t for t in held if t < VOCABULARY]] -= 2.0
        assert token == penalized.argmax()
    instance_of(program).close_sequence(sequence)


def test_vocabularies_of_many_blocks(tmp_path: Path, device: dict[str, Any]) -> None:
    """More than a workgroup has threads; the last has a single token in it."""
    size = 262145
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1}
    tiny = write_tiny_llm(tmp_path / "tiny", vocab_size=size, num_attention_heads=2, **sizes)
    path = satchel.export(tiny, tmp_path / "p.satchel", recipe="16a4w", **SIZES)
    session = Session(Program(path, target="vulkan"))
    session.feed(PROMPT[:4])
    logits = session.feed([5])
    text = [*PROMPT[:4], 5]
    for given in (
        {"top_k": 0, "top_p": 0.8, "repetition_penalty": 1.5},
        {"top_k": 50, "top_p": 0.9},
        {"top_k": 200_000, "top_p": 1.0, "logit_bias": {size - 1: 100.0}},
    ):
        options = SamplingOptions(1.5, **given)
        chances = np.cumsum(Sampler(options).distribution(logits, text))
        for number in (0.0, 0.4, 0.999):
            session.rewind(4)
            assert session.chain(5, options, [number]) == [np.flatnonzero(chances > number)[0]]
