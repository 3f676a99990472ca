"""What an install says and what a package carries."""

from __future__ import annotations

import ast
import importlib.metadata
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_the_licence_is_the_one_that_the_metadata_names() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text and "Version 2.0, January 2004" in text
    assert 'license = "Apache-2.0"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


@pytest.mark.skipif(not shutil.which("cmake") or not shutil.which("make"), reason="needs cmake")
def test_without_a_compiler_the_build_says_what_to_install(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("make", "uname"):
        found = shutil.which(name)
        assert found
        (tools / name).symlink_to(found)
    environment = {name: value for name, value in os.environ.items() if name not in ("CXX", "CC")}
    cmake = str(Path(str(shutil.which("cmake"))).resolve())
    done = subprocess.run(
        [cmake, "-G", "Unix Makefiles", "-S", str(ROOT), "-B", str(tmp_path / "build")],
        env={**environment, "PATH": str(tools)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "C++20 compiler, and none was found" in " ".join(done.stderr.split())


def test_an_installed_package_has_all_that_it_needs() -> None:
    """Documents for `satchel help`, the server's page, types, the runner."""
    listed = {str(path) for path in importlib.metadata.files("satchel") or ()}
    if "satchel/cli/main.py" not in listed:
        pytest.skip("this is an editable install")
    source = ROOT / "src"
    beside = [p for p in (source / "satchel").rglob("*") if p.is_file() and p.suffix != ".pyc"]
    wanted = {str(path.relative_to(source)) for path in beside}
    wanted |= {f"satchel/docs/{path.name}" for path in (ROOT / "docs").glob("*.md")}
    assert wanted <= listed, sorted(wanted - listed)[:9]
    names = {Path(name).name for name in listed}
    assert {"LICENSE", "satchel-run", "satchel.h"} <= names


def test_nothing_needs_a_newer_python_than_the_oldest() -> None:
    """mypy checks types as of that version; here is what it takes on trust: the syntax."""
    metadata = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert 'requires-python = ">=3.10"' in metadata
    for folder in ("src", "examples", "tools"):
        for path in (ROOT / folder).rglob("*.py"):
            ast.parse(path.read_text(encoding="utf-8"), str(path), feature_version=(3, 10))
