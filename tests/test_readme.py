"""What the README shows works as it is written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.tiny_llm import write_tiny_llm

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def test_the_python_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a tiny checkpoint in the place of the model that would be fetched."""
    (code,) = re.findall(r"```python\n(.*?)```", README, re.S)
    checkpoint = write_tiny_llm(tmp_path / "checkpoint")
    assert '"smollm2-135m"' in code
    monkeypatch.chdir(tmp_path)
    exec(code.replace('"smollm2-135m"', repr(str(checkpoint))), {})
    assert capsys.readouterr().out
    assert (tmp_path / "smollm2.satchel").exists()


def test_every_file_it_links_to_is_there() -> None:
    root = Path(__file__).parents[1]
    for link in re.findall(r"\]\(([^)#]+)\)", README):
        assert (root / link).exists(), link


def test_every_command_it_names_exists() -> None:
    from satchel.cli.main import COMMANDS

    assert set(re.findall(r"`satchel ([a-z]+)", README)) == set(COMMANDS)


def test_ci_runs_its_test_command() -> None:
    """.ci/run takes the first indented line under this heading."""
    section = README.split("## Test it")[1].split("## ")[0]
    commands = [line for line in section.splitlines() if line.startswith("    ")]
    assert commands == ["    pip install '.[test]' && pytest -n 2"]
