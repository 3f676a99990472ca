"""The paper's three language models and four vision models, exported with no option but the target:
what the plan says of file and memory, and what it was.

    python benchmarks/paper_exports.py --target cpu
    python benchmarks/paper_exports.py --target qnn:SM8750 qwen3-0_6b mv3
    python benchmarks/paper_exports.py --target qnn:SM8750 qwen3-4b --layers 4

Weights are random, of the real shapes; vision models need torchvision. Every export is a process of
its own. Its memory is what it and all processes that it starts have resident at the same time, at
most, looked at ten times a second; what the export itself tells is kept beside it in --json FILE.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from satchel.sources.random_weights import write_checkpoint

LANGUAGE = ("qwen3-0_6b", "llama3_2-1b", "phi4-mini")
VISION = ("mv3", "resnet50", "vit", "swin_t")


_PAGE = os.sysconf("SC_PAGE_SIZE")
_PAUSE = 0.1  # seconds between two looks at the memory


def satchel(*arguments: str) -> tuple[dict[str, Any], int]:
    """What a command tells, and the most memory that it took with all that it started."""
    command = [sys.executable, "-m", "satchel", *arguments, "--json"]
    most = 0
    with tempfile.TemporaryFile() as told:
        with subprocess.Popen(command, stdout=told) as process:
            while process.poll() is None:
                most = max(most, sum(map(resident, family(process.pid))))
                time.sleep(_PAUSE)
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command)
        told.seek(0)
        document: dict[str, Any] = json.loads(told.read())
    return document, most


def family(pid: int) -> Iterator[int]:
    """A process and all that descend from it."""
    yield pid
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
        children = [int(child) for t in threads for child in (t / "children").read_text().split()]
    except OSError:  # it has just ended
        return
    for child in children:
        yield from family(child)


def resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0


def measure(name: str, target: str, folder: Path, layers: int | None = None) -> dict[str, Any]:
    """Plan and export of one model; the plan comes first, and in a process of its own."""
    source = [name, "--random-weights"]
    if name not in VISION:
        write_checkpoint(name, folder / name, layers)
        source = [str(folder / name)]
    output = folder / "out.satchel"
    command = ["export", *source, "--target", target, "-o", str(output)]
    plan = satchel(*command, "--plan")[0]["plan"]
    started = time.perf_counter()
    made, memory = satchel(*command)
    return {
        "model": name,
        "target": target,
        "recipe": made["recipe"],
        "seconds": time.perf_counter() - started,
        "planned_bytes": plan["file_size_bytes"],
        "bytes": made["file_size_bytes"],
        "planned_memory": plan["peak_memory_bytes"],
        "memory": memory,
        "told_memory": made["peak_rss_bytes"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="MODEL", help="all by default")
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--layers", type=int, help="of a language model (all)")
    parser.add_argument("--folder", type=Path, help="where to write (default: a temporary folder)")
    parser.add_argument("--json", type=Path, help="add the figures to this file, a line each")
    arguments = parser.parse_args()
    for name in arguments.names or [*LANGUAGE, *VISION]:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            found = measure(name, arguments.target, Path(folder), arguments.layers)
        size, memory = (found[key] / found[f"planned_{key}"] - 1 for key in ("bytes", "memory"))
        print(
            f"| {name} | {arguments.target} | {found['recipe']} | {found['seconds']:.0f} s | "
            f"{found['bytes'] / 1e6:.1f} MB ({size:+.1%}) | "
            f"{found['memory'] / 1e6:.0f} MB ({memory:+.1%}) |",
            flush=True,
        )
        if arguments.json:
            with arguments.json.open("a") as file:
                file.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
