"""What a Core ML package cannot hold is told before any weight is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import satchel
from satchel.backends import find_target
from satchel.backends.coreml import rules
from satchel.errors import ConfigError, OutputExistsError, SatchelError
from satchel.exporter import ExportOptions, prepare_export
from satchel.exporter.pipeline import Export
from support.tiny_llm import write_tiny_llm


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llm(tmp_path_factory.mktemp("ml") / "tiny")


def test_names() -> None:
    assert find_target("coreml").name == "coreml:iOS18"
    assert find_target("coreml:ios17").name == "coreml:iOS17"
    with pytest.raises(ConfigError, match="newer ones run what iOS18 does"):
        find_target("coreml:iOS12")


def test_without_the_package_that_is_told(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"pip install 'satchel\[coreml\]'"):
        satchel.export(checkpoint, target="coreml")


@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        ("coreml", {"recipe": "fp32"}, "has no form for"),
        ("coreml", {"recipe": "16a4w"}, "has no form for"),
        ("coreml", {"kv_bits": 8}, "caches have 16 bits"),
        ("coreml", {"mode": "lookahead"}, "does not guess ahead"),
        ("coreml", {"pooling": "last"}, "gives no vectors"),
        ("coreml:iOS17", {"recipe": "8da4w"}, "need iOS 18"),
        (find_target("coreml", palettes=True), {"recipe": "8da4w"}, "of 16-bit weights"),
    ],
    ids=["fp32", "16a4w", "kv", "lookahead", "pooling", "groups", "palettes"],
)
def test_refusals(checkpoint: Path, target: Any, options: dict[str, Any], message: str) -> None:
    pytest.importorskip("coremltools")
    with pytest.raises(SatchelError, match=message):
        prepare_export(checkpoint, ExportOptions(target=target, **options))


def test_a_package_is_replaced_only_if_it_may_be(checkpoint: Path, tmp_path: Path) -> None:
    pytest.importorskip("coremltools")
    path = satchel.export(checkpoint, tmp_path / "m.mlpackage", target="coreml", recipe="fp16")
    before = {p for p in path.rglob("*")}
    with pytest.raises(OutputExistsError):
        satchel.export(checkpoint, path, target="coreml", recipe="fp16")
    satchel.export(checkpoint, path, target="coreml", recipe="fp16", overwrite=True)
    assert {p for p in path.rglob("*")} == before
    assert not list(tmp_path.glob(".partial*"))


def test_what_lies_beside_is_told_before_the_work(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("coremltools")
    monkeypatch.setattr(Export, "_pack", lambda *_: pytest.fail("weights were read"))
    (tmp_path / "m.tokenizer.json").write_text("mine")
    with pytest.raises(OutputExistsError, match=r"m\.tokenizer\.json exists"):
        satchel.export(checkpoint, tmp_path / "m.mlpackage", target="coreml", recipe="fp16")
    assert [path.name for path in tmp_path.iterdir()] == ["m.tokenizer.json"]


def test_an_interrupted_export_leaves_what_was_there(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("coremltools")
    path = satchel.export(checkpoint, tmp_path / "m n.mlpackage", target="coreml", recipe="fp16")
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    from satchel.backends.coreml.blobs import BlobFile

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(BlobFile, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        satchel.export(checkpoint, path, target="coreml", recipe="fp16", overwrite=True)
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before
