"""satchel-run beside llama.cpp's llama-cli: size, start to the first token, peak memory.

    python benchmarks/runner_side_by_side.py smollm2.satchel --runner build/runner/satchel-run \\
        --gguf smollm2.gguf --llama-cli llama-cli --rounds 5

Every run is a process of its own that reads a prompt and writes a few tokens, in turn, from files
that were read once before. The time is from the start of the process to the first byte of its
answer; memory is the most that the system counted for it, mapped weights that were read included.
Sizes are of the program and of the libraries beside it that it loads (not the system's).
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PROMPT = "The capital of France is"
SYSTEM = ("/lib", "/usr/lib", "/lib64")


@dataclass(frozen=True)
class Start:
    first_s: float
    peak_bytes: int


def start(command: Sequence[str]) -> Start:
    """One run, from its start to its first byte, and its memory at the end."""
    began = time.perf_counter()
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None
    byte = process.stdout.read(1)
    first = time.perf_counter() - began
    process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if not byte or process.returncode:
        raise SystemExit(f"{command[0]} failed with status {process.returncode}")
    return Start(first, usage.ru_maxrss * 1024)


def size_of(program: str) -> int:
    """Of a program with the libraries that it brings along."""
    total = os.path.getsize(program)
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
    for line in listed.splitlines():
        place = line.partition("=>")[2].split(" (")[0].strip()
        if place and not place.startswith(SYSTEM):
            total += os.path.getsize(place)
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=Path)
    parser.add_argument("--runner", required=True)
    parser.add_argument("--gguf", type=Path)
    parser.add_argument("--llama-cli")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", default="2")
    given = parser.parse_args()
    ours = [given.runner, "run", str(given.program), PROMPT, "--raw", "--max-new-tokens", "4"]
    contenders = {"satchel-run": [*ours, "--temperature", "0", "--threads", given.threads]}
    if given.llama_cli and given.gguf:
        theirs = [given.llama_cli, "-m", str(given.gguf), "-p", PROMPT, "-n", "4", "--temp", "0"]
        theirs += ["-no-cnv", "--no-display-prompt", "--no-warmup", "-t", given.threads]
        contenders["llama-cli"] = theirs
    runs: dict[str, list[Start]] = {name: [] for name in contenders}
    for number in range(given.rounds + 1):
        for name, command in contenders.items():
            found = start(command)
            if number:  # the first one reads the files
                runs[name].append(found)
    print("| | program | start to first token | peak memory |\n|---|---|---|---|")
    for name, found_runs in runs.items():
        size = size_of(contenders[name][0]) / 1e6
        first = statistics.median(run.first_s for run in found_runs) * 1000
        peak = statistics.median(run.peak_bytes for run in found_runs) / 1e6
        print(f"| {name} | {size:.1f} MB | {first:.0f} ms | {peak:.0f} MB |")


if __name__ == "__main__":
    main()
