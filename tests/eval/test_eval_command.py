"""satchel eval as a user runs it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from satchel.cli.main import main

Capture = pytest.CaptureFixture[str]


def failure(capsys: Capture, *arguments: object) -> str:
    """Exit status 1, nothing on standard output, one line on standard error."""
    capsys.readouterr()
    assert main([*map(str, arguments)]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err.splitlines()[-1]


def test_a_table(capsys: Capture, program: Path, checkpoint: Path, text: Path) -> None:
    call = ["eval", program, "--text", text, "--limit", 90, "--window", 32]
    phases = ["--phases", "fp,qdq,device", "--checkpoint", checkpoint]
    assert main([*map(str, [*call, *phases])]) == 0
    captured = capsys.readouterr()
    rows = [line.split()[0] for line in captured.out.splitlines() if line]
    assert rows[-4:-1] == ["fp", "qdq", "device"]
    assert "is chance" in captured.out.splitlines()[-1]
    assert "87 tokens in windows of 32" in captured.out
    assert "Perplexity of device: 100%" in captured.err
    assert main([*map(str, call)]) == 0
    assert "went on from an earlier run" in capsys.readouterr().out


def test_json(capsys: Capture, program: Path, text: Path) -> None:
    assert main(["eval", str(program), "--text", str(text), "--stride", "20", "--json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert set(document["phases"]) == {"device"}
    assert document["phases"]["device"]["ppl"] > 1
    assert document["tokens"] == document["phases"]["device"]["tokens"]
    assert (document["window"], document["stride"], document["limit"]) == (64, 20, None)
    assert document["tasks"] == {}


def test_a_checkpoint_is_its_own_float_phase(
    capsys: Capture, checkpoint: Path, text: Path, own_cache: Path
) -> None:
    """Both programs are made on first use and kept."""
    call = ["eval", str(checkpoint), "--text", str(text), "--limit", "50"]
    assert main([*call, "--phases", "fp,device", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)["phases"]) == {"fp", "device"}
    assert len(list((own_cache / "programs").glob("*.satchel"))) == 2


def test_hellaswag(capsys: Capture, program: Path, tmp_path: Path) -> None:
    file = tmp_path / "hellaswag.txt"
    file.write_text("\n".join(["a b. c", "1", *"defg"] * 2) + "\n")
    assert main(["eval", str(program), "--hellaswag", str(file)]) == 0
    out = capsys.readouterr().out
    assert "acc_norm" in out and "hellaswag" in out
    assert out.splitlines()[-1].split()[:1] == ["device"]


def test_an_interruption_says_that_nothing_is_lost(
    capsys: Capture, program: Path, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> float:
        raise KeyboardInterrupt

    monkeypatch.setattr("satchel.eval.perplexity.score_window", stop)
    assert main(["eval", str(program), "--text", str(text)]) == 130
    assert "the same command goes on from there" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "there is nothing to evaluate"),
        (["--text", "missing.txt"], "missing.txt cannot be read"),
        (["--text", "{short}"], "has 1 tokens"),
        (["--text", "{latin}"], "is not UTF-8"),
        (["--text", "{text}", "--phases", "fp,float"], "no phase 'float'"),
        (["--text", "{text}", "--phases", "fp"], "Give it with --checkpoint"),
        (["--text", "{text}", "--phases", "fp", "--checkpoint", "no/such"], "does not exist"),
        (["--text", "{text}", "--window", "1"], "window of 1 tokens is too short"),
        (["--text", "{text}", "--stride", "65"], "leaves tokens of the text out"),
        (["--hellaswag", "{text}"], "HellaSwag has 6"),
        (["--hellaswag", "x", "--tasks", "hellaswag"], "chosen twice"),
    ],
)
def test_wrong_input_is_said_before_any_work(
    capsys: Capture,
    program: Path,
    text: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    said: str,
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("the long work has begun")

    monkeypatch.setattr("satchel.llm.session.Session.logits_of", never)
    monkeypatch.setattr("satchel.exporter.pipeline.Export.run", never)
    (tmp_path / "short").write_text("a")
    (tmp_path / "latin").write_bytes("grün".encode("latin-1"))
    names = {"short": tmp_path / "short", "latin": tmp_path / "latin", "text": text}
    line = failure(capsys, "eval", program, *(a.format(**names) for a in arguments))
    assert said in line


def test_tasks_need_lm_eval(
    capsys: Capture, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    line = failure(capsys, "eval", program, "--tasks", "hellaswag")
    assert "pip install 'satchel[eval]'" in line


@pytest.mark.parametrize("arguments", [["--limit", "0"], ["--task-data", "x"], ["--window", "x"]])
def test_wrong_usage(program: Path, arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as exit_info:
        main(["eval", str(program), *arguments])
    assert exit_info.value.code == 2
