"""Measured runs: warm-up, iterations, cool-down, prompts with a name, and lengths in all."""

from __future__ import annotations

import json
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import satchel
from satchel.cli.main import main
from satchel.llm.named_prompts import named_prompt
from support.tiny_llm import write_tiny_llm

Capture = pytest.CaptureFixture[str]


def run_json(capsys: Capture, *arguments: object) -> dict[str, Any]:
    capsys.readouterr()
    assert main([*map(str, arguments), "--json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_iterations_are_the_same_work_each_time(capsys: Capture, program: Path) -> None:
    plain = run_json(capsys, "run", program, "--prompt", "hello", "--max-new-tokens", 4)
    assert plain["medians"] is None
    many = ["--warmup", 1, "--iterations", 3, "--temperature", 0]
    found = run_json(capsys, "run", program, "-p", "hello", "--max-new-tokens", 4, *many)
    assert found["text"] == plain["text"] and found["reused_tokens"] == 0
    medians = found["medians"]
    assert medians["iterations"] == 3
    for name in ("prefill_tok_s", "decode_tok_s", "ttft_s"):
        low, high = medians[f"{name}_spread"]
        assert 0 < low <= medians[name] <= high


def test_the_text_comes_once_and_every_run_is_told(capsys: Capture, program: Path) -> None:
    command = ["run", str(program), "--prompt", "hello", "--max-new-tokens", "3"]
    assert main(command) == 0
    text = capsys.readouterr().out
    assert main([*command, "--iterations=2", "--warmup=1"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"{text}medians of 2 runs:\n")
    assert "time to first token" in out and "tok/s" in out
    assert err.count("prompt tokens") == 2 and "warm-up 1 of 1" in err and "run 2 of 2" in err
    assert "read at" in err


def test_runs_rest_in_between(
    capsys: Capture, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rests: list[float] = []
    monkeypatch.setattr(time, "sleep", rests.append)
    sizes = ["--max-new-tokens", "2", "--warmup", "1", "--iterations", "2", "--cool-down", "30"]
    assert main(["run", str(program), "--prompt", "hello", *sizes]) == 0
    assert rests == [30, 30]
    rests.clear()
    lengths = ["--prompt-tokens", "4", "--new-tokens", "2", "--cool-down", "1.5"]
    assert main(["bench", str(program), *lengths]) == 0
    assert rests == [1.5] * 3  # one warm-up and three runs


def test_the_text_may_stand_behind_options(capsys: Capture, program: Path) -> None:
    wanted = run_json(capsys, "run", program, "hello", "--raw", "--max-new-tokens", 3)["tokens"]
    assert run_json(capsys, "run", program, "--raw", "hello", "--max-new-tokens", 3)["tokens"] == (
        wanted
    )
    for wrong in (["hello", "there"], ["--rawer"]):
        with pytest.raises(SystemExit):
            main(["run", str(program), "--raw", *wrong])
        assert "unrecognized arguments" in capsys.readouterr().err


def test_seq_len_counts_prompt_and_answer(capsys: Capture, program: Path) -> None:
    plain = run_json(capsys, "run", program, "--prompt", "hi", "--max-new-tokens", 9)
    total = plain["prompt_tokens"] + 5
    found = run_json(capsys, "run", program, "--prompt", "hi", "--seq-len", total)
    assert found["tokens"] == plain["tokens"][:5]
    both = ["--seq-len", total, "--max-new-tokens", 2]
    assert len(run_json(capsys, "run", program, "--prompt", "hi", *both)["tokens"]) == 2
    assert main(["run", str(program), "--prompt", "hi", "--seq-len", "3"]) == 1
    assert "seq_len 3 leaves no room" in capsys.readouterr().err


@pytest.fixture(scope="module")
def roomy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every letter is a token here, so that the paper's prompt needs some room."""
    folder = tmp_path_factory.mktemp("roomy")
    checkpoint = write_tiny_llm(folder / "m", max_position_embeddings=2048)
    return satchel.export(checkpoint, folder / "m.satchel", recipe="fp32", context=2048)


def test_the_papers_prompt_has_a_name(capsys: Capture, roomy: Path) -> None:
    paper = named_prompt("paper:executorch")
    found = run_json(
        capsys, "run", roomy, "--prompt-file", "paper:executorch", "--max-new-tokens", 2
    )
    same = ["-p", paper.user, "--system", paper.system, "--max-new-tokens", 2]
    assert found["tokens"] == run_json(capsys, "run", roomy, *same)["tokens"]
    letters = len(paper.system) + len(paper.user)
    assert letters < found["prompt_tokens"] < letters + 20
    measured = run_json(
        capsys, "bench", roomy, "--prompt-file", "paper:executorch", "--new-tokens", 2, "--runs", 1
    )
    assert measured["prompt_tokens"] == found["prompt_tokens"]
    assert main(["run", str(roomy), "--prompt-file", "paper:else"]) == 1
    assert "paper:executorch" in capsys.readouterr().err


def test_bench_reads_a_prompt_from_a_file(capsys: Capture, program: Path, tmp_path: Path) -> None:
    text = tmp_path / "prompt.txt"
    text.write_text("hello there")
    chat = run_json(capsys, "run", program, "--prompt-file", text, "--max-new-tokens", 1)
    found = run_json(capsys, "bench", program, "--prompt-file", text, "--new-tokens", 2)
    assert found["prompt_tokens"] == chat["prompt_tokens"] and found["lookahead"] is None


def test_a_module_is_run_again_and_again(capsys: Capture, tmp_path: Path) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())
    path = satchel.export(module.eval(), (torch.zeros(1, 4),), tmp_path / "m.satchel")
    np.save(tmp_path / "x.npy", np.ones((1, 4), np.float32))
    runs = ["--iterations", 5, "--warmup", 2]
    found = run_json(capsys, "run", path, "--input", tmp_path / "x.npy", *runs)
    seconds = found["results"][0]
    assert 0 < seconds["median_s"] < 1 and 0 < seconds["mean_s"] < 1
    once = run_json(capsys, "run", path, "--input", tmp_path / "x.npy")["results"][0]
    assert "median_s" not in once and once["first"] == seconds["first"]
    assert statistics.fmean(once["first"]) == pytest.approx(statistics.fmean(seconds["first"]))
