"""Checkpoints as people have them: what is odd about them and does no harm is told, not refused."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest

import satchel
from exporter.small_checkpoint import write_small
from satchel.checkpoints import open_checkpoint
from satchel.cli.main import main
from satchel.exporter.usual import is_small
from satchel.remarks import Remark
from support.tiny_llm import write_tiny_llm


def edit(path: Path, **fields: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def test_added_tokens_without_a_row_are_told_and_are_just_text(tmp_path: Path) -> None:
    """As Gemma 3's <image_soft_token>: token 262,144 of a text model with 262,144 rows."""
    folder = write_small(tmp_path / "m", tokens=321)
    with pytest.warns(Remark, match="no row for <extra_62>"):
        program = satchel.export(folder, tmp_path / "m.satchel")
    tokenizer = satchel.LLM(program).tokenizer
    assert tokenizer.vocab_size == 320
    inside, beyond = tokenizer.encode("<extra_61>"), tokenizer.encode("<extra_62>")
    assert inside == [319]
    assert max(beyond) < 320 and tokenizer.decode(beyond) == "<extra_62>"


def test_a_word_of_the_vocabulary_without_a_row_is_another_model(tmp_path: Path) -> None:
    folder = write_small(tmp_path / "m")
    path = folder / "tokenizer.json"
    document = json.loads(path.read_text())
    document["model"]["vocab"]["zz"] = 320
    path.write_text(json.dumps(document))
    with pytest.raises(satchel.SatchelError, match="has 321 tokens, and the embedding only 320"):
        satchel.export(folder, tmp_path / "m.satchel")


def test_end_tokens_of_config_json_count_without_a_generation_config(tmp_path: Path) -> None:
    folder = write_small(tmp_path / "m", eos_token_id=[7, 257])
    with open_checkpoint(folder) as checkpoint:
        assert checkpoint.generation["eos_token_id"] == [7, 257]
    program = satchel.load(satchel.export(folder, tmp_path / "a.satchel"))
    assert program.metadata["tokenizer"]["eos_ids"] == [7, 257]
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 257}))
    program = satchel.load(satchel.export(folder, tmp_path / "b.satchel"))
    assert program.metadata["tokenizer"]["eos_ids"] == [257]


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{% for m in messages %}{{ m.content }}", "cannot be parsed"),
        ("{{ messages[0].content.shout() }}", "failed"),
        ("{{ raise_exception('not today') }}", "not today"),
    ],
)
def test_a_broken_chat_template_is_told_at_export(
    tmp_path: Path, template: str, reason: str
) -> None:
    folder = write_tiny_llm(tmp_path / "m", template)
    with pytest.warns(Remark, match=f"template .*{reason}.*will not chat"):
        program = satchel.export(folder, tmp_path / "m.satchel")
    with pytest.raises(satchel.SatchelError, match=reason):
        satchel.LLM(program).generate("Hello")


def test_a_field_that_is_not_understood_can_be_answered_for(tmp_path: Path) -> None:
    folder = write_small(tmp_path / "m", attention_sinks=4)
    output = tmp_path / "m.satchel"
    with pytest.raises(satchel.SatchelError, match="with ignore_config attention_sinks"):
        satchel.export(folder, output)
    satchel.export(folder, output, ignore_config=["attention_sinks"])
    call = ["export", str(folder), "-o", str(output), "--force"]
    assert main([*call, "--ignore-config", "attention_sinks"]) == 0
    assert main(call) == 1


def test_a_context_that_was_cut_is_told(tmp_path: Path) -> None:
    folder = write_small(tmp_path / "m")
    with pytest.warns(Remark, match="context is 64 tokens.* not 4096"):
        satchel.export(folder, tmp_path / "m.satchel", context=4096)


@pytest.fixture
def no_toys(monkeypatch: pytest.MonkeyPatch) -> None:
    """The models of tests count as small ones."""
    monkeypatch.setattr("satchel.exporter.usual.TOY", 0)


@pytest.mark.usefixtures("no_toys")
def test_small_models_are_rounded_with_care_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SATCHEL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    folder = write_tiny_llm(tmp_path / "m")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        careful = satchel.load(satchel.export(folder, tmp_path / "a.satchel"))
    recipe = careful.metadata["recipe"]
    assert (recipe["name"], recipe["embedding"], recipe["head_bits"]) == ("8da4w", [8, 0], 8)
    assert recipe["rounding"] == "search" and recipe["calibration"]["source"] == "built-in"
    assert not (tmp_path / "cache").exists() and not any((tmp_path / "temporary").iterdir())
    plain = satchel.load(satchel.export(folder, tmp_path / "b.satchel", recipe="8da4w"))
    assert plain.metadata["recipe"]["rounding"] == "plain"
    # A choice of how to round is all that is chosen.
    mine = satchel.load(satchel.export(folder, tmp_path / "c.satchel", group_size=32))
    assert mine.metadata["recipe"]["embedding"] == [4, 32]


def test_toys_and_large_models_are_not() -> None:
    assert [is_small(n) for n in (5_000_000, 135_000_000, 1_240_000_000)] == [False, True, False]


@pytest.mark.usefixtures("no_toys")
def test_what_plain_rounding_costs_a_small_model_is_told(tmp_path: Path) -> None:
    folder = write_small(tmp_path / "m")
    with pytest.warns(Remark, match="Plain 8da4w costs .* The default"):
        satchel.export(folder, tmp_path / "a.satchel", recipe="8da4w")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        satchel.export(folder, tmp_path / "b.satchel", recipe="fp16")
    # Where the default is plain, the advice is another, and taking it ends it.
    with pytest.warns(Remark, match="calibrate built-in and rounding search round with more care"):
        satchel.export(folder, tmp_path / "c.satchel", target="vulkan")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        careful = {"calibrate": "built-in", "rounding": "search"}
        satchel.export(folder, tmp_path / "d.satchel", target="vulkan", **careful)


@pytest.mark.parametrize(
    ("place", "reason"),
    [("there.satchel", "exists"), ("none/x.satchel", "no folder")],
)
def test_what_is_named_is_checked_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], place: str, reason: str
) -> None:
    """Before the checkpoint is so much as looked for."""
    (tmp_path / "there.satchel").write_text("mine")
    assert main(["export", "no-such-model", "-o", str(tmp_path / place)]) == 1
    assert reason in capsys.readouterr().err
    assert not (tmp_path / "none").exists()
    if place != "none/x.satchel":
        with pytest.raises(satchel.SatchelError, match=reason):
            satchel.export("no-such-model", tmp_path / place)


def test_a_tied_embedding_of_the_heads_bits_is_stored_once(tmp_path: Path) -> None:
    folder = write_tiny_llm(tmp_path / "m")
    program = satchel.load(
        satchel.export(folder, tmp_path / "m.satchel", embedding=(8, 0), head_bits=8, context=32)
    )
    names = [weight["name"] for weight in program.weights]
    assert [name for name in names if "embed" in name] == ["model.embed_tokens.weight"]
    apart = satchel.load(satchel.export(folder, tmp_path / "b.satchel", embedding=(8, 0)))
    assert program.size < apart.size
    answer = satchel.LLM(program).generate("hello", max_new_tokens=4).finish()
    assert len(answer.tokens) == 4


def test_rows_that_are_no_multiple_of_eight_are_named_as_such(tmp_path: Path) -> None:
    sizes = {"hidden_size": 126, "num_attention_heads": 3, "num_key_value_heads": 3}
    folder = write_small(tmp_path / "m", weights_of=sizes, **sizes)
    with pytest.raises(satchel.SatchelError, match="of 8 numbers .* the 126 columns"):
        satchel.export(folder, tmp_path / "m.satchel", recipe="8a8w")
