"""Help, usage and completion: short, true, and without Python's tuples."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from satchel.cli.main import COMMANDS, main
from satchel.errors import ProgramFormatError

Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_defaults_as_people_write_them(command: str, capsys: Capture) -> None:
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code == 0
    shown = capsys.readouterr().out
    text = " ".join(shown.split())
    assert "(default: (" not in text and "(default: [" not in text
    assert "(default: 0.0)" not in text and "(default: )" not in text
    titles = re.findall(r"^\S.*:$", shown, re.MULTILINE)
    assert len(titles) == len(set(titles)), titles


def test_a_default_of_zero_is_told(capsys: Capture) -> None:
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "runs that do not count (default: 0)" in text
    assert "when they are warm (default: 0)" in text


def test_wrong_usage_is_one_line(capsys: Capture) -> None:
    for arguments in (["run", "x", "--colour"], ["frobnicate"], ["export", "x", "--context", "a"]):
        with pytest.raises(SystemExit) as stop:
            main(arguments)
        assert stop.value.code == 2
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 1 and "--help" in lines[0], lines


def test_run_takes_the_text_behind_the_model(capsys: Capture, program: Path) -> None:
    def text(*arguments: str) -> str:
        assert main(["run", str(program), *arguments, "--max-new-tokens", "4", "--json"]) == 0
        return str(json.loads(capsys.readouterr().out)["text"])

    assert text("hello") == text("-p", "hello") == text("--prompt", "hello")
    assert main(["run", str(program)]) == 2
    assert 'satchel run MODEL "' in capsys.readouterr().err
    assert main(["run", str(program), "a", "-p", "b"]) == 2
    assert "two things to answer" in capsys.readouterr().err


def test_the_beginning_of_a_file_is_not_told_as_a_place() -> None:
    assert str(ProgramFormatError("it is not a program", "", "file")) == "it is not a program"
    told = str(ProgramFormatError("too long", "", "methods", 12))
    assert told == "too long (section methods, offset 12)"


def test_bash_takes_the_completion(capsys: Capture, tmp_path: Path) -> None:
    assert main(["completion", "bash"]) == 0
    script = tmp_path / "complete.sh"
    script.write_text(capsys.readouterr().out)

    def offered(*words: str) -> list[str]:
        ask = f"source {script}; COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; "
        ask += '$(complete -p satchel | sed "s/.*-F \\([^ ]*\\).*/\\1/") '
        ask += f"satchel {words[-1]} {words[-2]}; "
        ask += 'echo "${COMPREPLY[@]}"'
        found = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=True)
        return found.stdout.split()

    assert offered("satchel", "ch") == ["chat"]
    assert offered("satchel", "help", "qu") == ["quality"]


def test_documents_can_be_read_offline(capsys: Capture) -> None:
    assert main(["help"]) == 0
    assert "json" in capsys.readouterr().out
    assert main(["help", "json"]) == 0
    assert capsys.readouterr().out.startswith("# ")
    assert main(["help", "weather"]) == 1
    assert "no document about 'weather'. Topics: " in capsys.readouterr().err
