"""Makes the SPIR-V that is committed beside its sources again.

    python compile.py [FOLDER]      writes to FOLDER, or beside the sources

Needs glslc (Debian: apt-get install glslc) and, for shaders with cooperative matrices, which that
one does not know yet, a newer compiler that comes with the Python package slangpy.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).parent
NEWER = "GL_KHR_cooperative_matrix"
_COMPUTE, _TO_SPIRV = 6, 0
# The optimiser keeps drivers from unrolling loops over matrices, which then lie in memory.
_AS_IT_IS = 0


def compiles_with_glslc(source: Path) -> bool:
    """Whether the system's compiler is enough."""
    return NEWER not in source.read_text()


def compile_with_glslc(source: Path, target: Path) -> None:
    command = ["glslc", "--target-env=vulkan1.1", "-O", "-I", str(HERE), str(source)]
    subprocess.run([*command, "-o", str(target)], check=True)


def included(source: Path) -> str:
    """The text with what it includes."""

    def text_of(match: re.Match[str]) -> str:
        return included(HERE / match[1])

    return re.sub(r'#include "([^"]+)"', text_of, source.read_text())


def newer_library() -> Path | None:
    """Where the newer compiler is, without importing the package."""
    found = find_spec("slangpy")
    folders = found.submodule_search_locations if found else None
    for folder in folders or ():
        for library in Path(folder).glob("libslang-glslang*"):
            return library
    return None


class _Request(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("path", ctypes.c_char_p),
        ("begin", ctypes.c_void_p),
        ("end", ctypes.c_void_p),
        ("tell", ctypes.c_void_p),
        ("tell_data", ctypes.c_void_p),
        ("give", ctypes.c_void_p),
        ("give_data", ctypes.c_void_p),
        ("stage", ctypes.c_int),
        ("action", ctypes.c_uint),
        ("optimisation", ctypes.c_uint),
        ("debug_info", ctypes.c_uint),
        ("environment", ctypes.c_char_p),
        ("version", ctypes.c_int * 3),
        ("entry", ctypes.c_char_p),
    ]


def compile_with_newer(source: Path, target: Path) -> None:
    library = newer_library()
    if library is None:
        raise SystemExit(f"{source.name} needs a newer compiler: pip install --no-deps slangpy")
    messages, code = bytearray(), bytearray()
    take = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
    tell = take(lambda data, size, _: messages.extend(ctypes.string_at(data, size)))
    give = take(lambda data, size, _: code.extend(ctypes.string_at(data, size)))
    text = included(source).encode()
    held = ctypes.create_string_buffer(text)
    begin = ctypes.addressof(held)
    request = _Request(
        size=ctypes.sizeof(_Request),
        path=source.name.encode(),
        begin=begin,
        end=begin + len(text),
        tell=ctypes.cast(tell, ctypes.c_void_p),
        give=ctypes.cast(give, ctypes.c_void_p),
        stage=_COMPUTE,
        action=_TO_SPIRV,
        optimisation=_AS_IT_IS,
        version=(1, 6, 0),
        entry=b"main",
    )
    result = ctypes.CDLL(str(library)).glslang_compile_1_2(ctypes.byref(request))
    if result != 0 or not code:
        raise SystemExit(f"{source.name}: {messages.decode(errors='replace')}")
    target.write_bytes(code)


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    for source in sorted(HERE.glob("*.comp")):
        compile_ = compile_with_glslc if compiles_with_glslc(source) else compile_with_newer
        compile_(source, folder / source.with_suffix(".spv").name)


if __name__ == "__main__":
    main()
