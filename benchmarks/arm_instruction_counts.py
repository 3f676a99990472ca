"""Instructions that a 64-bit Arm executes for a quantised linear layer, for each kernel table.

    python benchmarks/arm_instruction_counts.py

Needs cmake, aarch64-linux-gnu-g++, a C compiler and qemu-aarch64 (packages g++-aarch64-linux-gnu
and qemu-user). The layer runs on an emulated CPU, with a plugin that counts; running it once and
three times and taking the difference leaves the layer alone.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1]
TABLES = ("portable", "neon", "dotprod", "i8mm")
PLUGIN_VERSIONS = range(1, 8)  # an emulator takes some of these, older ones 1, newer ones 2 and up


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)


def must_run(*command: str) -> None:
    done = run(*command)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")


def build_program(folder: Path) -> Path:
    settings = ["SYSTEM_NAME=Linux", "SYSTEM_PROCESSOR=aarch64"]
    settings.append("CXX_COMPILER=aarch64-linux-gnu-g++")
    definitions = ["-DSATCHEL_TESTS=ON", *(f"-DCMAKE_{setting}" for setting in settings)]
    must_run("cmake", "-S", str(SOURCE), "-B", str(folder), *definitions)
    must_run("cmake", "--build", str(folder), "--parallel", "2", "--target", "kernel_repeat")
    return folder / "kernel_repeat"


def emulator_with_plugin(folder: Path, program: Path) -> list[str]:
    """The command that runs a program and counts, with the plugin version that QEMU accepts."""
    source = SOURCE / "native" / "tests" / "count_instructions.c"
    plugin = folder / "count_instructions.so"
    said = ""
    for version in PLUGIN_VERSIONS:
        flags = ["-shared", "-fPIC", "-O2", f"-DPLUGIN_VERSION={version}"]
        must_run("cc", *flags, str(source), "-o", str(plugin))
        command = ["qemu-aarch64", "-cpu", "max", "-plugin", str(plugin)]
        done = run(*command, str(program))
        if "instructions " in done.stderr:
            return command
        said = done.stderr
    sys.exit(f"qemu-aarch64 does not take the plugin: {said}")


def count(command: list[str], times: int) -> int:
    done = run(*command, str(times))
    if done.returncode != 0:
        sys.exit(done.stderr)
    return int(done.stderr.split("instructions ")[1].split()[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--cols", type=int, default=1024)
    parser.add_argument("--group", type=int, default=32)
    parser.add_argument("--tokens", type=int, nargs="+", default=[1, 4, 32])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        program = build_program(Path(name))
        emulator = emulator_with_plugin(Path(name), program)
        size = [str(options.rows), str(options.cols), str(options.group)]
        print(f"{options.rows} x {options.cols} weights, groups of {options.group}\n")
        print("| weights | tokens | table | instructions | per 100 multiply-adds | portable / it |")
        print("|---|---|---|---|---|---|")
        for encoding in ("q4", "q8", "i8"):
            for tokens in options.tokens:
                portable = 0.0
                for table in TABLES:
                    command = [*emulator, str(program), table, encoding, str(tokens), *size]
                    executed = (count(command, 3) - count(command, 1)) / 2
                    portable = portable or executed
                    products = options.rows * options.cols * tokens
                    print(
                        f"| {encoding} | {tokens} | {table} | {executed:,.0f} "
                        f"| {100 * executed / products:.1f} | {portable / executed:.1f} |",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
