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
