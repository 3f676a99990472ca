"""The paper's three language models and four vision models, exported with no option but the target:
what the plan says of file and memory, and what it was.

    python benchmarks/paper_exports.py --target cpu
    python benchmarks/paper_exports.py --target qnn:SM8750 qwen3-0_6b mv3

Weights are random, of the real shapes; vision models need torchvision. Every export is a process of
its own, and its memory is told with that of the processes that it starts. Add --json FILE to keep
the figures.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from satchel.sources.random_weights import write_checkpoint

LANGUAGE = ("qwen3-0_6b", "llama3_2-1b", "phi4-mini")
VISION = ("mv3", "resnet50", "vit", "swin_t")


def satchel(*arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "satchel", *arguments, "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def measure(name: str, target: str, folder: Path) -> dict[str, Any]:
    """Plan and export of one model; the plan comes first, and in a process of its own."""
    source = [name, "--random-weights"]
    if name not in VISION:
        write_checkpoint(name, folder / name, None)
        source = [str(folder / name)]
    output = folder / "out.satchel"
    command = ["export", *source, "--target", target, "-o", str(output)]
    plan = satchel(*command, "--plan")["plan"]
    started = time.perf_counter()
    made = satchel(*command)
    return {
        "model": name,
        "target": target,
        "recipe": made["recipe"],
        "seconds": time.perf_counter() - started,
        "planned_bytes": plan["file_size_bytes"],
        "bytes": made["file_size_bytes"],
        "planned_memory": plan["peak_memory_bytes"],
        "memory": made["peak_rss_bytes"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="MODEL", help="all by default")
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--folder", type=Path, help="where to write (default: a temporary folder)")
    parser.add_argument("--json", type=Path, help="add the figures to this file, a line each")
    arguments = parser.parse_args()
    for name in arguments.names or [*LANGUAGE, *VISION]:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            found = measure(name, arguments.target, Path(folder))
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
