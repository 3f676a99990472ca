"""The examples in the docstrings of the installed package run and give what they show."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from pathlib import Path

import pytest

import satchel
from support.tiny_llm import write_tiny_llm

MODULES = sorted(
    m.name
    for m in pkgutil.walk_packages(satchel.__path__, "satchel.")
    if not m.name.endswith(("__main__", "._native"))
)

EXTRAS = {"coremltools", "executorch"}  # packages that need not be there


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that examples refer to: a checkpoint and its program."""
    folder = tmp_path_factory.mktemp("examples")
    write_tiny_llm(folder / "tiny-llama")
    satchel.export(folder / "tiny-llama", folder / "model.satchel", context=64)
    return folder


@pytest.mark.parametrize("name", ["satchel", *MODULES])
def test_examples(
    name: str, examples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in examples.iterdir():
        (tmp_path / file.name).symlink_to(file)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SATCHEL_CACHE", str(tmp_path / "cache"))
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in EXTRAS:
            raise
        pytest.skip(f"{error.name} is not installed")
    result = doctest.testmod(module)
    assert result.failed == 0
