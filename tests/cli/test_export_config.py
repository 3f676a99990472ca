"""Options of an export from a YAML file, and --metadata."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

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
        ("a: [", "is not YAML"),
        ("metadata: {get_eos_id: 3}", "Did you mean 'get_eos_ids'?"),
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
    assert "nothing to export" in failing(capsys, "export")
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
