"""The committed SPIR-V is that of the sources beside it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from satchel import _native

SHADERS = Path(__file__).parents[3] / "native" / "vulkan" / "shaders"
SOURCES = sorted(SHADERS.glob("*.comp"))


def test_every_source_has_its_code_and_every_code_its_source() -> None:
    assert len(SOURCES) > 10
    assert {s.stem for s in SOURCES} == {s.stem for s in SHADERS.glob("*.spv")}
    assert _native.vulkan.ops()


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_code_is_what_the_compiler_makes_of_the_source(source: Path, tmp_path: Path) -> None:
    compiler = shutil.which("glslc")
    if compiler is None:
        pytest.skip("there is no glslc: apt-get install glslc")
    made = tmp_path / "made.spv"
    command = [compiler, "--target-env=vulkan1.1", "-O", "-I", SHADERS, source, "-o", made]
    subprocess.run(command, check=True)
    committed = source.with_suffix(".spv").read_bytes()
    if _version(made.read_bytes()) != _version(committed):
        pytest.skip("another version of the compiler made the committed code")
    assert made.read_bytes() == committed, (
        f"{source.name} has changed: {SHADERS / 'compile.sh'} makes its code again"
    )


def _version(code: bytes) -> bytes:
    """The generator's number in the header."""
    return code[8:12]


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_code_needs_nothing_beyond_vulkan_1_1(source: Path) -> None:
    """One capability, that of plain shaders: no device is asked for more."""
    words = memoryview(source.with_suffix(".spv").read_bytes()).cast("I")
    assert words[0] == 0x07230203 and words[1] <= 0x00010300
    capabilities, at = [], 5
    while at < len(words):
        length, opcode = words[at] >> 16, words[at] & 0xFFFF
        if opcode == 17:
            capabilities.append(words[at + 1])
        at += length
    assert capabilities == [1]
