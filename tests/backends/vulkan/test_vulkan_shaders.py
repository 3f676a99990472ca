"""The committed SPIR-V is that of the sources beside it."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from types import ModuleType

import pytest

from satchel import _native

SHADERS = Path(__file__).parents[3] / "native" / "vulkan" / "shaders"
SOURCES = sorted(SHADERS.glob("*.comp"))


def test_every_source_has_its_code_and_every_code_its_source() -> None:
    assert len(SOURCES) > 10
    assert {s.stem for s in SOURCES} == {s.stem for s in SHADERS.glob("*.spv")}
    assert _native.vulkan.ops()


def compiler() -> ModuleType:
    """native/vulkan/shaders/compile.py, which is no part of the package."""
    spec = importlib.util.spec_from_file_location("compile_shaders", SHADERS / "compile.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_code_is_what_the_compiler_makes_of_the_source(source: Path, tmp_path: Path) -> None:
    tools, made = compiler(), tmp_path / "made.spv"
    if tools.compiles_with_glslc(source):
        if shutil.which("glslc") is None:
            pytest.skip("there is no glslc: apt-get install glslc")
        tools.compile_with_glslc(source, made)
    else:
        if tools.newer_library() is None:
            pytest.skip("there is no newer compiler: pip install --no-deps slangpy")
        tools.compile_with_newer(source, made)
    committed = source.with_suffix(".spv").read_bytes()
    if _version(made.read_bytes()) != _version(committed):
        pytest.skip("another version of the compiler made the committed code")
    assert made.read_bytes() == committed, (
        f"{source.name} has changed: {SHADERS / 'compile.py'} makes its code again"
    )


def _version(code: bytes) -> bytes:
    """The generator's number in the header."""
    return code[8:12]


PLAIN = {"Shader": 1}
SUMS = PLAIN | {"GroupNonUniform": 61, "GroupNonUniformArithmetic": 63}
BYTES = SUMS | {"DotProductInput4x8BitPacked": 6018, "DotProduct": 6019}
MATRICES = PLAIN | {"Float16": 9, "VulkanMemoryModel": 5345, "CooperativeMatrixKHR": 6022}
MATRICES |= {"GroupNonUniform": 61, "GroupNonUniformShuffle": 65, "Int8": 39}
# Devices are asked for these before such a shader is used; all others run on any.
NEEDED = {
    "attention": SUMS,
    "attention_one": SUMS,
    "attention_one_in_turn": SUMS,
    "quantize_packed": SUMS,
    "gemm_dot": BYTES,
    "linear_few": BYTES,
    "linear_one": BYTES,
    "linear_one_in_turn": BYTES,
    "conv_tile_bytes": BYTES,
    "peak_dot": BYTES,
    "peak_matrix": MATRICES,
    "gemm_bytes": MATRICES,
    "gemm_few": MATRICES,
    "gemm_many": MATRICES,
    "attention_block": MATRICES,
}


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_code_needs_no_more_than_devices_are_asked_for(source: Path) -> None:
    words = memoryview(source.with_suffix(".spv").read_bytes()).cast("I")
    newer = NEEDED.get(source.stem) is MATRICES
    assert words[0] == 0x07230203 and words[1] <= (0x00010600 if newer else 0x00010300)
    capabilities, at = set(), 5
    while at < len(words):
        length, opcode = words[at] >> 16, words[at] & 0xFFFF
        if opcode == 17:
            capabilities.add(words[at + 1])
        at += length
    allowed = NEEDED.get(source.stem, PLAIN)
    assert capabilities <= set(allowed.values()), f"only {list(allowed)}"
