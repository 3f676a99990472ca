"""Files compiled for more than the baseline emit nothing that other files could be linked to.

The linker keeps one copy of an inline function or template. If that copy were compiled for AMX, a
CPU without it would stop in the middle of ``std::min``. A debug build inlines nothing, so that it
shows all that could be emitted.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from arm.kernel_program import ARM_COMPILER, SOURCE, build, need

X86 = "avx2 avx512 amx amx_whole amx_integer amx_attention".split()
ARM = "neon neon_dotprod dotprod_integer neon_i8mm i8mm_integer".split()
ARM_SETTINGS = (
    "-DCMAKE_SYSTEM_NAME=Linux",
    "-DCMAKE_SYSTEM_PROCESSOR=aarch64",
    f"-DCMAKE_CXX_COMPILER={ARM_COMPILER}",
)


def output_of(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    ("compiler", "settings", "units"), [("c++", (), X86), (ARM_COMPILER, ARM_SETTINGS, ARM)]
)
def test_only_what_the_tables_name_is_global(
    compiler: str, settings: tuple[str, ...], units: list[str], tmp_path: Path
) -> None:
    need("cmake", compiler, "nm")
    if compiler == "c++" and "x86_64" not in output_of("c++", "-dumpmachine"):
        pytest.skip("this machine is not x86")
    folder = build(tmp_path, "-DCMAKE_BUILD_TYPE=Debug", *settings, targets=("satchel_kernels",))
    headers = [SOURCE / "native/kernels" / name for name in ("tables.h", "amx_tiles.h")]
    declared = {n for h in headers for n in re.findall(r"\b(\w+)(?=[(;])", h.read_text())}
    objects = {path.name.split(".")[0]: path for path in folder.glob("**/satchel_kernels.dir/*.o")}
    for unit in units:
        lines = output_of("nm", "--demangle", "--defined-only", "--extern-only", str(objects[unit]))
        symbols = [line.split(" ", 2)[1:] for line in lines.splitlines() if line]
        assert symbols, unit
        for kind, name in symbols:
            known = name.removeprefix("satchel::").split("(")[0]
            assert kind in "TDRB" and known in declared, f"{unit}.cpp emits {name} ({kind})"
