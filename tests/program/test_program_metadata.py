"""Metadata have a class for each kind of program: written from it, and checked against it."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import satchel
from satchel.errors import ProgramFormatError
from satchel.graph.builder import GraphBuilder
from satchel.program.about import KINDS, About, AboutLanguageModel, AboutModule, read_about
from satchel.program.metadata import SCHEMA
from satchel.program.writer import ProgramWriter
from satchel.runtime.program import Program
from support.tiny_llm import write_tiny_llm


def test_an_export_reads_back_as_its_class(tmp_path: Path) -> None:
    path = satchel.export(write_tiny_llm(tmp_path / "tiny"), tmp_path / "p.satchel", context=64)
    program = Program(path)
    assert isinstance(program.about, AboutLanguageModel) and program.is_language_model
    assert program.about.to_dict() == program.metadata
    assert program.about.context == 64 and program.about.more == {}
    assert program.targets == ("cpu",)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_is_read(kind: str) -> None:
    written = KINDS[kind](name="x", target="cpu", targets=["cpu", "half"], more={"vision": {}})
    assert read_about(written.to_dict()) == written
    assert list(written.to_dict())[:2] == ["satchel_version", "kind"]


def write(path: Path, document: dict[str, Any]) -> Path:
    b = GraphBuilder("forward")
    b.output(b.node("relu", b.input("x", (2,))), "y")
    ProgramWriter([b.finish()], {}).write(path, lambda *_: iter(()), lambda: document)
    return path


ODD: dict[str, Any] = {
    "name": 3,
    "parameters": -1,
    "target": 5,
    "targets": "cpu",
    "payloads": {"half": 1},
    "recipe": [],
    "placement": {"nodes": {"cpu": "many"}, "fallbacks": []},
    "weight_error": {"w": "much"},
    "provenance": "there",
    "context": True,
    "mode": [],
    "lookahead": "3",
    "adapters": [1],
    "layer_error": {"w": [None]},
    "tokenizer": [],
    "generation": 5,
    "satchel_version": 1,
    "pooling": ["last"],
    "runner": "mine",
    "output_snr_db": "much",
    "in_16_bits": "all",
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_kind_has_is_checked(kind: str) -> None:
    """All that code may take for granted, because no file that says otherwise is opened."""
    assert {each.name for each in fields(KINDS[kind])} - {"more"} <= set(SCHEMA)


@pytest.mark.parametrize("name", ODD)
def test_odd_metadata_are_a_damaged_file(name: str, tmp_path: Path) -> None:
    path = write(tmp_path / "p.satchel", {"kind": "llm", name: ODD[name]})
    with pytest.raises(ProgramFormatError, match=rf"metadata's {name}[\w.]* is") as caught:
        Program(path).about  # noqa: B018
    assert caught.value.section == "metadata"
    with pytest.raises(ProgramFormatError):
        Program(path).instance()


@pytest.mark.parametrize("kind", ["test", None, "module"])
def test_any_other_kind_is_no_language_model(kind: object, tmp_path: Path) -> None:
    program = Program(write(tmp_path / "p.satchel", {"kind": kind, "other": 1}))
    assert not program.is_language_model and program.about.more == {"other": 1}
    assert type(program.about) is (AboutModule if kind == "module" else About)
    assert program.method("forward")([-1.0, 2.0]).tolist() == [0.0, 2.0]
