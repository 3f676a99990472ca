"""What a program holds for the NPU is not trusted."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import satchel
from satchel.backends import open_instance
from satchel.backends.qnn.kit import write_kit
from satchel.backends.qnn.manifest import Manifest
from satchel.backends.qnn.payload import MANIFEST, extract, read_manifest
from satchel.backends.qnn.prepared import PreparedProgram
from satchel.errors import ChecksumError, ProgramFormatError
from satchel.graph.builder import GraphBuilder
from satchel.llm.session import Session
from satchel.program.writer import ProgramWriter
from satchel.runtime.program import Program

Change = Callable[[dict[str, Any]], object]
BROKEN: dict[str, tuple[Change, str]] = {
    "no target": (lambda d: d.pop("target"), "not readable"),
    "a chip that is none": (lambda d: d.update(target="qnn:SM1"), "no target"),
    "a number for an object": (lambda d: d.update(methods=[1]), "not readable"),
    "another version": (lambda d: d.update(version=1), "version 1, and this is 2"),
    "no methods": (lambda d: d.update(methods=[]), "no methods"),
    "other bits": (lambda d: d.update(bits=12), "strange number of bits"),
    "endless blocks": (lambda d: d["methods"][0].update(tokens=1 << 40), "strange length"),
    "a method that is not there": (lambda d: d["methods"][0].update(name="x"), "does not have"),
    "no shards": (lambda d: d["methods"][0].update(shards=[]), "no shards"),
    "a small context": (lambda d: d["methods"][0].update(context=0), "strange context"),
    "an endless shape": (lambda d: _input(d).update(shape=[1 << 40]), "not readable"),
    "signed codes": (lambda d: _input(d).update(dtype="int8"), "not readable"),
    "an input less": (lambda d: d["methods"][0]["shards"][0]["inputs"].pop(), "no mask|no cache"),
    "another input": (lambda d: _input(d).update(name="other"), "does not describe"),
    "another scale": (lambda d: _input(d).update(scale=1.5), "does not describe"),
    "a cache on its side": (lambda d: d["methods"][0]["caches"][0].update(axis=1), "not fit into"),
    "a cache of nothing": (lambda d: d["methods"][0]["caches"][0].update(new="x"), "no cache"),
    "a mask of nothing": (lambda d: d["methods"][0]["masks"][0].update(name="x"), "no mask"),
    "no host": (lambda d: d["methods"][0].update(before=None), "nothing gives"),
    "a cut that cannot be": (lambda d: d.update(cuts=[2]), "where it cannot be cut"),
    "cuts out of order": (lambda d: d.update(cuts=[51, 1]), "where it cannot be cut"),
    "a scale of zero": (lambda d: d["encodings"].update(logits=[0.0, 0, 16]), "not readable"),
    "a scale that is a word": (lambda d: d["encodings"].update(logits=["x", 0, 16]), "readable"),
    "an encoding less": (lambda d: d["encodings"].pop("logits"), "no encoding of logits"),
}


def _input(document: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = document["methods"][0]["shards"][0]["inputs"][0]
    return found


@pytest.mark.parametrize("name", BROKEN)
def test_broken_manifests(name: str, npu_program: Path) -> None:
    program = Program(npu_program)
    document = json.loads(program.payload(MANIFEST))
    change, message = BROKEN[name]
    change(document)
    with pytest.raises(ProgramFormatError, match=message) as caught:
        PreparedProgram.of(program, Manifest.from_json(json.dumps(document).encode()))
    assert caught.value.advice


def test_a_manifest_survives_writing_and_reading(npu_program: Path) -> None:
    manifest = read_manifest(Program(npu_program))
    assert Manifest.from_json(manifest.to_json().encode()) == manifest
    assert manifest.shards[0]["agreement"] > 0.99


@pytest.fixture(scope="module")
def one_by_one(tiny_checkpoint: Path) -> Path:
    """Two shards for a chip whose binaries the emulator can load as they are."""
    pytest.importorskip("onnxruntime_qnn", reason="pip install 'satchel[qnn]'")
    target = satchel.find_target("qnn:SM8450", num_sharding=2)
    options = {"target": target, "context": 24, "mode": "kv"}
    output = tiny_checkpoint.parent / "one_by_one.satchel"
    return satchel.export(tiny_checkpoint, output, **options)


def test_the_manifest_is_enough_for_a_runner(one_by_one: Path, tmp_path: Path) -> None:
    """One of another hand, which knows the document and not the backend."""
    tokens = [5, 99, 7, 200, 31]
    write_kit(Program(one_by_one), tmp_path / "kit")
    runner = Path(__file__).with_name("manifest_runner.py")
    command = [sys.executable, runner, one_by_one, tmp_path / "kit", *map(str, tokens)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    # The vendor's library may say something too, before or behind it.
    (printed,) = [line for line in done.stdout.splitlines() if line.startswith("[")]
    got = np.array(json.loads(printed), np.float32)
    np.testing.assert_array_equal(got, Session(Program(one_by_one)).feed(tokens))


def test_running_lowers_nothing(one_by_one: Path, tmp_path: Path) -> None:
    """In a process of its own, for the vendor's library is loaded in it."""
    code = """
import sys, numpy as np
from pathlib import Path
from satchel.backends.qnn import loaded, prepared
def refuse(*_): raise AssertionError("lowered again")
loaded.PreparedProgram = prepared.lower = refuse
runner = loaded.load_program(Path(sys.argv[1]), "qnn:SM8450", Path(sys.argv[2]))
given = {"tokens": np.array([5], np.int32), "position": np.array([0], np.int32)}
given["sequence"] = given["position"]
print(runner.run("kv_forward", given)["logits"].shape)
"""
    command = [sys.executable, "-c", code, one_by_one, tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "(1, 320)" in done.stdout.splitlines()


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
    with pytest.raises(ProgramFormatError, match="no manifest.json for qnn:SM8750"):
        open_instance(program)


def test_names_that_lead_elsewhere(tmp_path: Path) -> None:
    b = GraphBuilder("forward")
    b.output(b.add(b.input("x", (2,)), b.input("y", (2,))))
    file = tmp_path / "file"
    file.write_bytes(b"abc")
    path = tmp_path / "p.satchel"
    writer = ProgramWriter([b.finish()], {}, payloads={"qnn:v79/../evil": file})
    writer.write(path, lambda w, e: iter(()), lambda: {"target": "qnn:v79"})
    program = Program(path, verify=True)
    assert program.payload("../evil") == b"abc"
    with pytest.raises(ProgramFormatError, match="is not a file name"):
        extract(program, tmp_path / "out")
