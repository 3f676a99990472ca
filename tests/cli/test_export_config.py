"""Options of an export from a YAML file, and --metadata."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import satchel
from satchel import LLM
from satchel.cli.main import main
from satchel.runtime.program import Program

Capture = pytest.CaptureFixture[str]


def failing(capsys: Capture, *arguments: object) -> str:
    assert main([*map(str, arguments)]) == 1
    return capsys.readouterr().err


def test_a_file_chooses_and_flags_override(checkpoint: Path, tmp_path: Path) -> None:
    config = tmp_path / "export.yaml"
    output = tmp_path / "from-yaml.satchel"
    config.write_text(
        f"source: {checkpoint}\noutput: {output}\nrecipe: 8da4w\nembedding: 8,0\n"
        "head-bits: 8\nprefill_ar_len: 16\ncontext: 100\n"
        "metadata: {get_eos_ids: [7, 9]}\n"
    )
    assert main(["export", "--config", str(config)]) == 0
    program = Program(output)
    assert program.metadata["recipe"]["embedding"] == [8, 0]
    assert program.metadata["recipe"]["head_bits"] == 8
    assert program.metadata["prefill_ar_len"] == 16
    assert program.metadata["context"] == 100
    assert program.metadata["tokenizer"]["eos_ids"] == [7, 9]
    other = tmp_path / "other.satchel"
    flags = ["--context", "50", "-o", str(other), "--embedding", "4,32"]
    assert main(["export", "--config", str(config), *flags]) == 0
    assert Program(other).metadata["context"] == 50
    assert Program(other).metadata["recipe"]["embedding"] == [4, 32]
    assert Program(other).metadata["prefill_ar_len"] == 16


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("recipee: fp16", "unknown key 'recipee'. Did you mean 'recipe'?"),
        ("group-sise: 32", "Did you mean 'group_size'?"),
        ("context: many", "context in"),
        ("embedding: 4", "must be str or list"),
        ("embedding: 4-32", "BITS,GROUP"),
        ("[1, 2]", "must hold keys and values"),
        ("a: [", "is not YAML: line 1, column 5: "),
        ("recipe: fp16\nrecipe: fp32", "line 2, column 1: the key 'recipe' is there twice"),
        ("metadata: {get_eos_idss: [3]}", "Did you mean 'get_eos_ids'?"),
        ("metadata: {get_eos_id: [3]}", "get_eos_id must be a token id"),
        ("metadata: {'get x': 3}", "is not a name for metadata"),
        ("metadata: {get_x: {a: 3}}", "must be a number, a text or a list"),
        ("metadata: {get_eos_ids: 3}", "must be a list of token ids"),
        ("metadata: {get_bos_id: true}", "must be a token id"),
        ("metadata: {get_eos_ids: [99999]}", "names the token 99999, and there are 320"),
    ],
)
def test_wrong_files_are_explained(
    capsys: Capture, checkpoint: Path, tmp_path: Path, text: str, said: str
) -> None:
    config = tmp_path / "export.yaml"
    config.write_text(text)
    assert said in failing(capsys, "export", checkpoint, "--config", config, "--plan")


def test_something_must_be_exported(capsys: Capture, tmp_path: Path) -> None:
    assert main(["export"]) == 2
    assert "nothing to export" in capsys.readouterr().err
    missing = tmp_path / "none.yaml"
    assert "No such file" in failing(capsys, "export", "--config", missing)


def test_metadata_decides_where_answers_end(checkpoint: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain.satchel"
    assert main(["export", str(checkpoint), "-o", str(plain)]) == 0
    tokens = LLM(plain).generate("x", max_new_tokens=5).finish().tokens
    chosen = tmp_path / "chosen.satchel"
    metadata = json.dumps({"get_eos_ids": [tokens[2]], "get_bos_id": 256})
    assert main(["export", str(checkpoint), "-o", str(chosen), "--metadata", metadata]) == 0
    generation = LLM(chosen).generate("x", max_new_tokens=5).finish()
    assert generation.stop_reason == "end_token"
    assert generation.tokens == tokens[: tokens.index(tokens[2])]
    assert Program(chosen).metadata["tokenizer"]["bos_id"] == 256


def test_other_metadata_is_kept_for_who_reads_the_file(checkpoint: Path, tmp_path: Path) -> None:
    output = tmp_path / "x.satchel"
    theirs = {"get_max_seq_len": 128, "use_kv_cache": True, "get_eos_id": 7, "tags": ["a", "b"]}
    command = ["export", str(checkpoint), "-o", str(output), "--metadata", json.dumps(theirs)]
    assert main(command) == 0
    metadata = Program(output).metadata
    assert metadata["tokenizer"]["eos_ids"] == [theirs.pop("get_eos_id")]
    assert metadata["runner"] == theirs


def test_the_output_may_be_a_folder(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name = "tiny-llama-cpu-8da4w-g32.satchel"
    assert main(["export", str(checkpoint), "-o", "new/folder/", "--plan"]) == 0
    assert not (tmp_path / "new").exists()
    for folder in ("new/folder/", "new/folder", "."):
        assert main(["export", str(checkpoint), "-o", folder, "--force"]) == 0
        assert (tmp_path / folder / name).is_file()
    assert satchel.export(checkpoint, tmp_path / "new").name == name
    assert satchel.export(checkpoint, "made/file.satchel") == Path("made/file.satchel")


def test_files_of_a_checkpoint_may_lie_apart(checkpoint: Path, tmp_path: Path) -> None:
    places = {name: tmp_path / name for name in ("weights", "config", "tokenizer")}
    for place in places.values():
        place.mkdir()
    weights = places["weights"] / "model.safetensors"
    params = places["config"] / "0_6b_config.json"
    shutil.copy(checkpoint / "model.safetensors", weights)
    shutil.copy(checkpoint / "config.json", params)
    tokenizer = places["tokenizer"] / "my_tokenizer.json"
    shutil.copy(checkpoint / "tokenizer.json", tokenizer)
    shutil.copy(checkpoint / "tokenizer_config.json", places["tokenizer"])
    flags = ["--checkpoint", weights, "--params", params, "--tokenizer", tokenizer]
    whole, apart = tmp_path / "whole.satchel", tmp_path / "apart.satchel"
    assert main(["export", str(checkpoint), "-o", str(whole)]) == 0
    assert main(["export", "llama3_2", *map(str, flags), "-o", str(apart)]) == 0
    assert Program(apart).metadata["name"] == "llama3_2"
    texts = [LLM(path).generate("Hi", max_new_tokens=8).finish().text for path in (whole, apart)]
    assert texts[0] == texts[1]
    again = satchel.export(weights, tmp_path / "b.satchel", params=params, tokenizer=tokenizer)
    assert LLM(again).generate("Hi", max_new_tokens=8).finish().text == texts[0]


def test_what_lies_nowhere_is_named(capsys: Capture, checkpoint: Path, tmp_path: Path) -> None:
    missing = failing(capsys, "export", checkpoint, "--tokenizer", tmp_path / "no.model")
    assert "there is no tokenizer at" in missing
    assert "no.json" in failing(capsys, "export", checkpoint, "--params", tmp_path / "no.json")


def test_no_two_exports_share_a_default_name(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    choices = [
        [],
        ["--mode", "kv"],
        ["--prefill-ar-len", "64"],
        ["--context", "256"],
        ["--embedding", "8,0"],
        ["--head-bits", "8"],
        ["--recipe", "fp16"],
        ["--recipe", "fp32", "--mode", "kv", "--context", "64"],
    ]
    for choice in choices:
        assert main(["export", str(checkpoint), *choice]) == 0
    names = {p.name for p in tmp_path.glob("*.satchel")}
    assert len(names) == len(choices)
    assert {"tiny-llama-cpu-8da4w-g32.satchel", "tiny-llama-cpu-fp32-kv-c64.satchel"} <= names
