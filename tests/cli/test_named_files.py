"""What a command is given is looked at before the work, and nothing is left out without a word."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from satchel.cli.main import main

Capture = pytest.CaptureFixture[str]
SATCHEL = [sys.executable, "-m", "satchel"]


@pytest.mark.parametrize(
    "command",
    [
        ["report", "PROGRAM", "-o", "missing/page.html"],
        ["sign", "--new-key", "missing/my.key"],
        ["bench", "--url", "http://127.0.0.1:9", "--plot", "missing/load.svg"],
        ["export", "CHECKPOINT", "-o", "missing/x.satchel"],
    ],
)
def test_a_folder_that_is_not_there_is_not_made(
    command: list[str], program: Path, checkpoint: Path, tmp_path: Path, capsys: Capture
) -> None:
    places = {"PROGRAM": str(program), "CHECKPOINT": str(checkpoint)}
    words = [places.get(word, word) for word in command]
    words = [str(tmp_path / word) if word.startswith("missing/") else word for word in words]
    assert main(words) == 1
    assert f"there is no folder {tmp_path / 'missing'}" in capsys.readouterr().err
    assert not (tmp_path / "missing").exists()


def test_keys_are_read_before_every_byte_is_checked(program: Path, capsys: Capture) -> None:
    for command in (["verify", str(program), "--key"], ["sign", str(program), "--key"]):
        assert main([*command, "nobody.key"]) == 1
        told = capsys.readouterr().err
        assert "nobody.key" in told and "Verifying" not in told


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
@pytest.mark.parametrize(
    "words", [["export", "PIPE"], ["export", "PIPE.onnx"], ["run", "PIPE", "hi"]]
)
def test_a_pipe_that_nobody_writes_to_is_not_waited_for(words: list[str], tmp_path: Path) -> None:
    for name in ("PIPE", "PIPE.onnx"):
        os.mkfifo(tmp_path / name)
    done = subprocess.run(
        [*SATCHEL, *words], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1 and "not a file" in done.stderr, done.stderr


@pytest.mark.parametrize(
    "option",
    [
        ["--observer", "mse"],
        ["--least-snr", "9"],
        ["--weights", "DEFAULT"],
        ["--classes", "names.txt"],
        ["--random-weights"],
        ["--size", "batch=4"],
    ],
)
def test_options_of_other_sources_are_refused(
    option: list[str], checkpoint: Path, tmp_path: Path, capsys: Capture
) -> None:
    output = tmp_path / "x.satchel"
    assert main(["export", str(checkpoint), "-o", str(output), *option]) == 2
    assert f"satchel: {option[0]} is for " in capsys.readouterr().err
    assert not output.exists()


def test_what_is_made_of_an_input_needs_one(program: Path, tmp_path: Path, capsys: Capture) -> None:
    for option in (["--output", str(tmp_path / "x.npz")], ["--annotate", str(tmp_path / "x.png")]):
        assert main(["run", str(program), "hi", *option]) == 2
        assert f"{option[0]} is for --input" in capsys.readouterr().err
    assert main(["bench", str(program), "--plot", "load.svg"]) == 2
    assert "--url" in capsys.readouterr().err


def test_metadata_that_json_cannot_hold(checkpoint: Path, tmp_path: Path, capsys: Capture) -> None:
    output = ["-o", str(tmp_path / "x.satchel")]
    assert main(["export", str(checkpoint), *output, "--metadata", '{"top": 1e400}']) == 2
    assert "top is not a finite number" in capsys.readouterr().err
    with pytest.raises(SystemExit) as caught:
        main(["export", str(checkpoint), *output, "--metadata", '{"a":' * 100_000])
    assert caught.value.code == 2
    assert len(capsys.readouterr().err) < 1000


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="nothing here has no end")
def test_a_prompt_without_end(program: Path, capsys: Capture) -> None:
    assert main(["run", str(program), "--prompt-file", "/dev/zero"]) == 1
    assert "/dev/zero is longer than a prompt may be, 64 MB" in capsys.readouterr().err
