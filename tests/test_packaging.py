"""What an install says and what a package carries."""

from __future__ import annotations

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
