"""How a model is sampled where nothing is said: as its generation_config.json has it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import GenerationConfig

import satchel
from satchel.cli.main import main
from satchel.errors import ConfigError
from satchel.llm.sampling import SamplingOptions, usual_sampling
from satchel.remarks import Remark
from support.tiny_llm import write_tiny_llm

QWEN = {
    "do_sample": True,
    "temperature": 0.7,
    "top_k": 20,
    "top_p": 0.8,
    "repetition_penalty": 1.05,
    "transformers_version": "4.37.0",
}
FIELDS = ("top_k", "top_p", "repetition_penalty")


@pytest.fixture(scope="module")
def sampled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program whose checkpoint asks to be sampled."""
    folder = write_tiny_llm(tmp_path_factory.mktemp("sampled") / "tiny")
    (folder / "generation_config.json").write_text(json.dumps(QWEN))
    return satchel.export(folder, folder.parent / "sampled.satchel", context=64)


@pytest.mark.parametrize(
    "given",
    [
        QWEN,
        {"do_sample": True},
        {"do_sample": True, "temperature": 0.6, "top_p": 0.9},
        {"do_sample": False, "temperature": 0.6, "repetition_penalty": 1.1},
        {"repetition_penalty": 1.1},
        {},
    ],
)
def test_the_defaults_are_those_of_transformers(given: dict[str, Any]) -> None:
    oracle, ours = GenerationConfig(**given), usual_sampling(given)
    assert ours.greedy is not bool(oracle.do_sample)
    assert ours.repetition_penalty == (oracle.repetition_penalty or 1.0)
    if oracle.do_sample:
        usual = {"temperature": 1.0, "top_k": 50, "top_p": 1.0}
        for name, value in usual.items():
            wanted = getattr(oracle, name)
            assert getattr(ours, name) == (value if wanted is None else wanted), name


def test_a_temperature_alone_means_sampling_as_in_gguf_files() -> None:
    assert usual_sampling({"temperature": 0.3}).temperature == 0.3


def test_a_program_is_sampled_as_its_checkpoint_says(sampled: Path) -> None:
    llm = satchel.LLM(sampled)
    assert llm.sampling == SamplingOptions(0.7, 20, 0.8, repetition_penalty=1.05)
    greedy = llm.generate("hello", temperature=0, max_new_tokens=8).finish().tokens
    drawn = [llm.generate("hello", seed=s, max_new_tokens=8).finish().tokens for s in range(4)]
    assert any(tokens != greedy for tokens in drawn)
    assert llm.generate("hello", seed=0, max_new_tokens=8).finish().tokens == drawn[0]


def test_python_and_the_command_line_choose_the_same_tokens(
    sampled: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    llm = satchel.LLM(sampled)
    for flags, given in (
        ([], {}),
        (["--temperature", "1.3"], {"temperature": 1.3}),
        (["--temperature", "0"], {"temperature": 0}),
        (["--top-k", "3", "--min-p", "0.1"], {"top_k": 3, "min_p": 0.1}),
    ):
        call = ["run", str(sampled), "--prompt", "x", "--seed", "7", "--max-new-tokens", "12"]
        assert main([*call, *flags, "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        answer = llm.generate("x", seed=7, max_new_tokens=12, **given).finish()
        assert document["tokens"] == answer.tokens, flags
        assert document["sampling"]["top_p"] == 0.8


def test_a_value_that_cannot_be_is_told_and_left_out(tmp_path: Path) -> None:
    folder = write_tiny_llm(tmp_path / "tiny")
    config = {"do_sample": True, "temperature": "warm", "top_p": 0.5}
    (folder / "generation_config.json").write_text(json.dumps(config))
    with pytest.warns(Remark, match="temperature is 'warm'"):
        program = satchel.export(folder, tmp_path / "tiny.satchel", context=32)
    assert satchel.LLM(program).sampling.describe() == "temperature 1, top-k 50, top-p 0.5"


@pytest.mark.parametrize(
    ("prompt", "options", "message"),
    [
        ([], {}, "the prompt is empty"),
        ("", {}, "the prompt is empty"),
        ("x", {"max_new_tokens": 1.5}, "max_new_tokens must be a whole number, not 1.5"),
        ("x", {"temperature": "high"}, "temperature is high"),
        ("x", {"top_k": 2.5}, "top_k is 2.5"),
    ],
)
def test_what_generate_refuses(
    hybrid_program: Path, prompt: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        satchel.LLM(hybrid_program).generate(prompt, **options)


def test_one_stop_text_need_not_be_in_a_list(hybrid_program: Path) -> None:
    llm = satchel.LLM(hybrid_program)
    text = llm.generate("hello", max_new_tokens=12).finish().text
    stop = text[3]
    answer = llm.generate("hello", max_new_tokens=12, stop=stop).finish()
    assert answer.text == text[: text.index(stop)]
    assert answer.stop_reason == "stop_string"
