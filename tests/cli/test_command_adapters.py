"""Adapters on the command line and in a YAML file."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from safetensors.torch import load_file

from cli.test_commands import Capture, failure, run_json
from exporter.lora_files import write_lora
from satchel.cli.main import main

RUN = ("--prompt", "ab", "--raw", "--max-new-tokens", "8")


@pytest.fixture
def lora(checkpoint: Path, tmp_path: Path) -> Path:
    tensors = load_file(checkpoint / "model.safetensors")
    return write_lora(tmp_path / "french", SimpleNamespace(state_dict=lambda: tensors), alpha=16)


def test_an_adapter_is_kept_and_chosen(
    capsys: Capture, checkpoint: Path, lora: Path, tmp_path: Path
) -> None:
    path = tmp_path / "m.satchel"
    exported = run_json(capsys, "export", checkpoint, "-o", path, "--adapter", f"fr={lora}")
    assert "kv_forward@fr" in exported["plan"]["methods"]
    plain = run_json(capsys, "run", path, *RUN)
    none = run_json(capsys, "run", path, *RUN, "--adapter", "none")
    french = run_json(capsys, "run", path, *RUN, "--adapter", "fr")
    assert (plain["adapter"], none["adapter"], french["adapter"]) == (None, None, "fr")
    assert plain["text"] == none["text"] != french["text"]
    problem = failure(capsys, "run", path, *RUN, "--adapter", "de")
    assert "has no adapter 'de'" in problem and "It has fr, none." in problem


def test_from_a_file_and_by_default_name(
    capsys: Capture,
    checkpoint: Path,
    lora: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    for text in (f"adapters: {{fr: {lora}}}", f"adapters: ['fr={lora}']"):
        Path("options.yaml").write_text(f"{text}\nlora: {lora}\n")
        planned = run_json(capsys, "export", checkpoint, "--config", "options.yaml", "--plan")
        assert planned["output"] == "tiny-llama-cpu-8da4w-g32-french-with+fr.satchel"


def test_what_is_not_an_adapter(capsys: Capture, checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["export", str(checkpoint), "--adapter", "french"])
    assert caught.value.code == 2
    assert "'french' is not NAME=FOLDER" in capsys.readouterr().err
    assert "is not a folder" in failure(capsys, "export", checkpoint, "--lora", tmp_path / "x")
