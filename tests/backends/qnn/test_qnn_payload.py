"""What a program holds for the NPU is not trusted."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from satchel.backends import open_instance
from satchel.backends.qnn.payload import MANIFEST, Manifest, extract, read_manifest, read_payload
from satchel.backends.qnn.prepared import PreparedProgram
from satchel.errors import ChecksumError, ProgramFormatError
from satchel.graph.builder import GraphBuilder
from satchel.program.writer import ProgramWriter
from satchel.runtime.program import Program

Change = Callable[[dict[str, Any]], object]
BROKEN: dict[str, tuple[Change, str]] = {
    "no target": (lambda d: d.pop("target"), "not readable"),
    "a chip that is none": (lambda d: d.update(target="qnn:SM1"), "no target"),
    "a list for an object": (lambda d: d.update(methods=[1]), "not readable"),
    "no methods": (lambda d: d.update(methods={}), "no methods"),
    "other bits": (lambda d: d.update(bits=12), "strange number of bits"),
    "endless blocks": (lambda d: d["methods"].update(kv_forward=1 << 40), "strange length"),
    "a method that is not there": (lambda d: d["methods"].update(other=1), "does not have"),
    "a cut that cannot be": (lambda d: d.update(cuts=[2]), "where it cannot be cut"),
    "cuts out of order": (lambda d: d.update(cuts=[51, 1]), "where it cannot be cut"),
    "a scale of zero": (lambda d: d["encodings"].update(logits=[0.0, 0, 16]), "not readable"),
    "a scale that is a word": (lambda d: d["encodings"].update(logits=["x", 0, 16]), "readable"),
    "an encoding less": (lambda d: d["encodings"].pop("logits"), "no encoding of logits"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_manifests(name: str, npu_program: Path) -> None:
    program = Program(npu_program)
    document = json.loads(read_payload(program, MANIFEST))
    change, message = BROKEN[name]
    change(document)
    with pytest.raises(ProgramFormatError, match=message) as caught:
        PreparedProgram.of(program, Manifest.from_json(json.dumps(document).encode()))
    assert caught.value.advice


def test_a_manifest_survives_writing_and_reading(npu_program: Path) -> None:
    manifest = read_manifest(Program(npu_program))
    assert Manifest.from_json(manifest.to_json().encode()) == manifest
    assert manifest.shards[0]["agreement"] > 0.99


def test_a_changed_binary_is_noticed(npu_program: Path, tmp_path: Path) -> None:
    program = Program(npu_program)
    place = next(w for w in program.weights if w["name"].endswith(".bin"))
    data = bytearray(npu_program.read_bytes())
    data[place["offset"] + 100] ^= 1
    changed = tmp_path / "changed.satchel"
    changed.write_bytes(data)
    with pytest.raises(ChecksumError, match="not those that were written"):
        extract(Program(changed), tmp_path / "files")


def _bare(path: Path, **metadata: Any) -> Program:
    b = GraphBuilder("kv_forward")
    b.output(b.add(b.input("x", (2,)), b.input("y", (2,))))
    ProgramWriter([b.finish()], {}).write(path, lambda w, e: iter(()), lambda: metadata)
    return Program(path)


def test_a_target_without_a_payload(tmp_path: Path) -> None:
    program = _bare(tmp_path / "bare.satchel", target="qnn:SM8750")
    with pytest.raises(ProgramFormatError, match="no manifest.json for the NPU"):
        open_instance(program)


def test_names_that_lead_elsewhere(tmp_path: Path) -> None:
    b = GraphBuilder("forward")
    b.output(b.add(b.input("x", (2,)), b.input("y", (2,))))
    file = tmp_path / "file"
    file.write_bytes(b"abc")
    path = tmp_path / "p.satchel"
    writer = ProgramWriter([b.finish()], {}, payloads={"qnn/../evil": file})
    writer.write(path, lambda w, e: iter(()), lambda: {})
    program = Program(path, verify=True)
    assert read_payload(program, "../evil") == b"abc"
    with pytest.raises(ProgramFormatError, match="is not a file name"):
        extract(program, tmp_path / "out")
