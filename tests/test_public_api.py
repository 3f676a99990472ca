"""What `import satchel` offers, as someone types it who has read the README only."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

import satchel
from support.tiny_llm import write_tiny_llm


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llm(tmp_path_factory.mktemp("api") / "tiny")


@pytest.fixture(scope="module")
def program(checkpoint: Path) -> Path:
    return satchel.export(checkpoint, checkpoint.parent / "tiny.satchel", context=64)


def test_version_and_names() -> None:
    assert satchel.__version__ == version("satchel")
    assert {"LLM", "Program", "export", "find_target", "load"} <= set(satchel.__all__)
    for name in satchel.__all__:
        assert getattr(satchel, name) is not None, name
    with pytest.raises(AttributeError, match="no attribute 'exprot'"):
        satchel.exprot  # noqa: B018


def test_models_are_listed_although_a_package_has_the_name() -> None:
    import satchel.models

    names = [entry.name for entry in satchel.models()]  # type: ignore[operator]
    assert "smollm2-135m" in names
    assert names == [entry.name for entry in satchel.catalog()]


def test_an_llm_is_made_of_a_checkpoint_on_first_use(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SATCHEL_CACHE", str(tmp_path))
    with pytest.warns(satchel.Remark, match="for the first time"):
        first = satchel.LLM(checkpoint).generate("hi", max_new_tokens=4).finish().text
    assert satchel.LLM(str(checkpoint)).generate("hi", max_new_tokens=4).finish().text == first
    with pytest.raises(satchel.SatchelError, match="smollm2-135m"):
        satchel.LLM("smollm2-135n")


def test_reprs_tell_what_it_is(program: Path) -> None:
    llm = satchel.LLM(program)
    assert "tiny" in repr(llm) and "8da4w" in repr(llm) and "64 tokens" in repr(llm)
    assert "kv_forward" in repr(llm.program) and "MB" in repr(llm.program)
    answer = llm.generate("Hi", max_new_tokens=2)
    assert "0 tokens, not finished" in repr(answer)
    assert "2 tokens, max_new_tokens" in repr(answer.finish())
    assert "Chat of 1 messages with <LLM tiny" in repr(llm.chat(system="Be brief."))


def test_prompts_that_are_none(program: Path) -> None:
    llm = satchel.LLM(program, threads=1)
    for odd in (b"bytes", [1, 2], ["a", "b"], 3):
        with pytest.raises(satchel.errors.ConfigError, match="a text or a list of messages"):
            llm.generate(odd)  # type: ignore[arg-type]
    with pytest.raises(satchel.errors.ConfigError, match="a list of texts"):
        llm.generate_many("Hi")
    for value in (10**400, float("inf"), "1"):
        with pytest.raises(satchel.errors.ConfigError, match="temperature is"):
            llm.generate("Hi", temperature=value)  # type: ignore[arg-type]
    for stop in (["\ud800"], [4]):
        with pytest.raises(satchel.errors.ConfigError, match="stop string is no text"):
            llm.generate("Hi", stop=stop)  # type: ignore[list-item]
    with pytest.raises(satchel.errors.ConfigError, match="a message is a text, not None"):
        llm.chat().send(None)  # type: ignore[arg-type]
    with pytest.raises(satchel.errors.TokenizerError, match="no text to encode, but 4"):
        llm.logprobs("Hi", 4)  # type: ignore[arg-type]
    with pytest.raises(satchel.errors.DownloadError, match="'' is neither a path nor the name"):
        satchel.LLM("")


def test_logprobs_are_those_of_the_logits(program: Path) -> None:
    llm = satchel.LLM(program)
    found = llm.logprobs("hello", " you")
    tokens = [*llm.tokenizer.encode("hello"), *llm.tokenizer.encode(" you", add_bos=False)]
    kv = satchel.load(program).method("kv_forward")
    rows = [kv.run(np.array([token], np.int32), [at])[0][0] for at, token in enumerate(tokens)]
    first = len(tokens) - len(found)
    for at, (_, value) in enumerate(found):
        row = rows[first + at - 1].astype(np.float64)
        wanted = row[tokens[first + at]] - np.log(np.exp(row).sum())
        assert value == pytest.approx(wanted, abs=1e-3)
    assert "".join(text for text, _ in found) == " you"
    with pytest.raises(satchel.SatchelError, match="nothing to judge"):
        llm.logprobs("hello", "")


def test_bench_and_evaluate(program: Path, tmp_path: Path) -> None:
    for wrong in ({"new_tokens": -1}, {"prompt_tokens": 0}, {"runs": 0}, {"runs": "3"}):
        with pytest.raises(satchel.SatchelError, match="must be a whole number above 0"):
            satchel.bench(program, **wrong)  # type: ignore[arg-type]
    result = satchel.bench(program, runs=1, warmup=0)
    assert result["prompt_tokens"] + result["new_tokens"] <= 64
    assert result["decode_tok_s"] > 0
    text = tmp_path / "words.txt"
    text.write_text("Pack a model once and carry it. " * 8)
    assert satchel.evaluate(program, text=text)["phases"]["device"]["ppl"] > 1


def test_a_type_checker_knows_the_names(tmp_path: Path) -> None:
    script = tmp_path / "use.py"
    script.write_text(
        "import satchel\n"
        "llm = satchel.LLM('smollm2-135m')\n"
        "text: str = llm.generate('x', temperature=0.5).finish().text\n"
        "speed = satchel.bench('a.satchel', runs=1)['decode_tok_s']\n"
        "names: list[str] = [entry.name for entry in satchel.catalog()]\n"
        "version: str = satchel.__version__\n"
    )
    call = [sys.executable, "-m", "mypy", "--strict", str(script)]
    result = subprocess.run(call, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert result.returncode == 0, result.stdout


def test_errors_name_arguments_and_not_flags(checkpoint: Path, program: Path) -> None:
    with pytest.raises(satchel.errors.OutputExistsError) as caught:
        satchel.export(checkpoint, program)
    assert str(caught.value) == f"{program} exists. Give another name, or overwrite=True."
    with pytest.raises(satchel.errors.ContextFullError) as full:
        satchel.LLM(program, threads=1).generate("long " * 40).finish()
    assert "larger context" in str(full.value) and "--" not in str(full.value)
    assert "--context" in full.value.advice  # which is what the command line prints


def test_an_argument_that_export_does_not_have(checkpoint: Path) -> None:
    with pytest.raises(TypeError, match=r"export\(\) got .* 'group_sizes'; did you mean 'group_si"):
        satchel.export(checkpoint, group_sizes=32)  # type: ignore[call-overload]


def test_one_name_need_not_be_in_a_list(checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(satchel.errors.SatchelError, match="nowhere is not a folder"):
        satchel.export(checkpoint, tmp_path / "x.satchel", lora="nowhere")
    with pytest.raises(satchel.errors.ConfigError, match="no field 'odd_field'"):
        satchel.export(checkpoint, tmp_path / "x.satchel", ignore_config="odd_field")
