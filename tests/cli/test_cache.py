"""satchel cache: what is kept, how large, what is a duplicate, and deleting it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from satchel.cli.main import main

Capture = pytest.CaptureFixture[str]


def run(capsys: Capture, *arguments: str) -> dict[str, Any]:
    assert main(["cache", *arguments, "--json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


@pytest.fixture
def filled(own_cache: Path) -> Path:
    """A checkpoint of 3,000 bytes, two programs of which one replaced the other, and a ruin."""
    sizes = {
        "checkpoints/tiny/model.gguf": 3000,
        "programs/tiny-cpu-8da4w-0123456789ab.satchel": 1000,
        "programs/tiny-cpu-8da4w-ba9876543210.satchel": 1100,
        "programs/tiny-cpu-fp16-0123456789ab.satchel": 500,
        "programs/.partial-x": 70,
    }
    for number, (name, size) in enumerate(sizes.items()):
        path = own_cache / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(size))
        os.utime(path, (number * 1000, number * 1000))
    (own_cache / "programs" / ".lock").touch()
    return own_cache


def test_an_empty_cache(capsys: Capture, own_cache: Path) -> None:
    assert run(capsys) == {
        "folder": str(own_cache), "size_bytes": 0, "entries": [], "deleted": []
    }  # fmt: skip
    assert main(["cache"]) == 0
    assert str(own_cache) in capsys.readouterr().out


def test_what_is_kept_and_what_was_replaced(capsys: Capture, filled: Path) -> None:
    document = run(capsys)
    entries = {entry["name"]: entry for entry in document["entries"]}
    assert document["size_bytes"] == 5670
    assert entries["tiny"]["kind"] == "checkpoint" and entries["tiny"]["size_bytes"] == 3000
    replaced = {name for name, entry in entries.items() if entry["replaced"]}
    assert replaced == {"tiny-cpu-8da4w-0123456789ab.satchel", ".partial-x"}
    assert main(["cache"]) == 0
    shown = capsys.readouterr().out
    assert "3.0 kB" in shown and "replaced by a newer one" in shown and "5.7 kB in" in shown


def test_clean_deletes_only_what_was_replaced(capsys: Capture, filled: Path) -> None:
    document = run(capsys, "clean")
    assert {entry["size_bytes"] for entry in document["deleted"]} == {1000, 70}
    assert run(capsys)["size_bytes"] == 4600


def test_delete_takes_names_or_all(capsys: Capture, filled: Path) -> None:
    run(capsys, "delete", "tiny")
    assert not (filled / "checkpoints" / "tiny").exists()
    assert main(["cache", "delete", "smollm2"]) == 1
    assert "not in the cache" in capsys.readouterr().err
    assert main(["cache", "delete"]) == 2
    assert main(["cache", "list", "tiny"]) == 2
    capsys.readouterr()
    assert run(capsys, "delete", "all")["entries"] == []
    assert run(capsys)["size_bytes"] == 0
