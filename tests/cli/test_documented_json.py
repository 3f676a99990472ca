"""docs/json.md names every field that a command prints, and no other."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from satchel.cli.main import main

DOCUMENT = Path(__file__).parents[2] / "docs" / "json.md"


def documented(heading: str) -> set[str]:
    """The top-level names in the section that a heading begins."""
    text = DOCUMENT.read_text(encoding="utf-8")
    section = re.split(r"^## ", text, flags=re.M)
    body = next(s for s in section if s.startswith(heading))
    body = "\n".join(
        line.split("|")[1] if line.startswith("|") else line for line in body.splitlines()[1:]
    )
    return {re.split(r"[.\[]", name)[0] for name in re.findall(r"`([^`…]+)`", body)}


def fields(capsys: pytest.CaptureFixture[str], *arguments: object) -> set[str]:
    capsys.readouterr()
    assert main([*map(str, arguments), "--json"]) == 0
    return set(json.loads(capsys.readouterr().out))


def test_fields(
    capsys: pytest.CaptureFixture[str], checkpoint: Path, program: Path, tmp_path: Path
) -> None:
    output = tmp_path / "o.satchel"
    text = tmp_path / "text.txt"
    text.write_text("a text of some tokens")
    calls = {
        "`satchel export`": ("export", checkpoint, "-o", output),
        "`satchel run`": ("run", program, "--prompt", "x", "--max-new-tokens", 2),
        "`satchel eval`": ("eval", program, "--text", text),
        "`satchel inspect`": ("inspect", program),
        "`satchel report`": ("report", program, "-o", tmp_path / "report.html"),
        "`satchel verify`": ("verify", program),
        "`satchel sign`": ("sign", "--new-key", tmp_path / "key"),
        "`satchel pull`": ("pull", checkpoint),
        "`satchel doctor`": ("doctor",),
        "`satchel models`": ("models",),
    }
    for heading, call in calls.items():
        nested = {"name", "architecture", "parameters", "context", "description", "source"}
        names = documented(heading) - (nested if "models" in heading else set())
        assert fields(capsys, *call) == names, heading
    experiment = tmp_path / "experiment.yaml"
    experiment.write_text(f"models: [{checkpoint}]\nprompts: [8]\n")
    plan = fields(capsys, "sweep", experiment, "-o", tmp_path / "results", "--plan")
    assert plan == documented("`satchel sweep --plan`")
    bench = fields(capsys, "bench", program, "--prompt-tokens", 8, "--new-tokens", 4)
    spreads = {"prefill_tok_s_spread", "decode_tok_s_spread"}
    assert bench - spreads == documented("`satchel bench`")
