"""GGUF files of several types as they are, in Satchel and llama.cpp: logits and speed.

    python benchmarks/gguf_side_by_side.py smollm2.gguf --peer llama/bin/python
    python benchmarks/gguf_side_by_side.py smollm2.gguf --peer … --mixture --kinds Q4_K_M Q6_K
    python benchmarks/gguf_side_by_side.py qwen-q4_k_m.gguf --kinds as-is --llama-bench llama-bench
    python benchmarks/gguf_side_by_side.py smollm2.gguf --llama-bench llama-bench \\
        --llama-quantize llama-quantize

llama.cpp makes a file of each type, ``as-is`` is the file itself; both run it, one after the other
in each round. ``--mixture`` takes random weights of a mixture of experts in the place of the
file's, and its tokenizer. ``--keep FOLDER`` keeps what was made, and ``--prepare`` does no more
than make it, so that a quiet machine can measure later. ``--llama-bench`` takes llama.cpp's speed
from its own tool, and ``--llama-quantize`` files of other types; without ``--peer``, a Python with
llama-cpp-python, logits are not compared. Of the logits: how far they are apart relative to their
size, and how often the likeliest token is the same.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import satchel
from satchel.sweeps.processes import run_json

PEERS = Path(__file__).resolve().parent / "peers"
TOKENS = [1, *range(400, 463)]
AS_IS = "as-is"
SPEEDS = ("prefill_tok_s", "decode_tok_s")


def peer(arguments: Any, *words: object) -> None:
    script = PEERS / "gguf_llamacpp.py"
    subprocess.run([arguments.peer, str(script), *map(str, words)], check=True, cwd=PEERS)


def logits_apart(gguf: Path, program: Path, arguments: Any, work: Path) -> tuple[float, float]:
    found = work / "logits.npz"
    peer(arguments, "logits", gguf, found, "--tokens", *TOKENS)
    theirs = np.load(found)["logits"]
    method = satchel.load(program).instance(arguments.threads).method("prefill_forward")
    tokens = np.array(TOKENS, np.int32)
    mine = method.run(tokens, np.zeros(1, np.int32), np.arange(len(tokens), dtype=np.int32))[0]
    apart = np.linalg.norm(mine - theirs) / np.linalg.norm(theirs)
    return float(apart), float((mine.argmax(1) == theirs.argmax(1)).mean())


def by_llama_bench(gguf: Path, arguments: Any) -> dict[str, float]:
    """By llama.cpp's own tool; an answer begins behind a prompt, as in ``satchel bench``."""
    common = [arguments.llama_bench, "-m", gguf, "-t", arguments.threads, "-r", 2, "-o", "json"]
    found = []
    for words in (
        ["-p", arguments.prompt, "-n", 0],
        ["-p", 0, "-n", arguments.new, "-d", arguments.prompt],
    ):
        done = subprocess.run([*map(str, [*common, *words])], capture_output=True, check=True)
        found.append(float(json.loads(done.stdout)[0]["avg_ts"]))
    return dict(zip(SPEEDS, found, strict=True))


def by_peer(gguf: Path, options: list[str], arguments: Any, work: Path) -> dict[str, float]:
    llama = [arguments.peer, str(PEERS / "llamacpp_peer.py")]
    folder = work / "peer"
    if not folder.exists():
        folder.mkdir()
        subprocess.run([*llama, "prepare", str(gguf), str(folder)], check=True, stdout=sys.stderr)
    return dict(run_json([*llama, "bench", str(folder), *options], work / "log.txt"))


def speeds(gguf: Path, program: Path, arguments: Any, work: Path) -> list[dict[str, float]]:
    """Tokens per second of each, medians over the rounds."""
    options = [f"--prompt-tokens={arguments.prompt}", f"--new-tokens={arguments.new}"]
    options += [f"--threads={arguments.threads}", "--runs=2", "--json"]
    ours = [sys.executable, "-m", "satchel", "bench", str(program), *options]
    rounds = []
    for _ in range(arguments.rounds):
        mine = run_json(ours, work / "log.txt")
        if arguments.llama_bench:
            theirs = by_llama_bench(gguf, arguments)
        else:
            theirs = by_peer(gguf, options, arguments, work)
        rounds.append([mine, theirs])
    return [
        {name: statistics.median(float(both[i][name]) for both in rounds) for name in SPEEDS}
        for i in range(2)
    ]


def prepare(source: Path, kind: str, arguments: Any, folder: Path) -> tuple[Path, Path]:
    """The GGUF of a type and our program of it, made unless they are there."""
    gguf = source if kind == AS_IS else folder / f"{source.stem}-{kind}.gguf"
    if not gguf.exists() and arguments.llama_quantize:
        tool = [arguments.llama_quantize, "--allow-requantize", source, gguf, kind]
        subprocess.run([*map(str, tool)], check=True, stdout=subprocess.DEVNULL)
    elif not gguf.exists():
        peer(arguments, "quantize", source, gguf, kind)
    program = folder / f"{gguf.stem}.satchel"
    if not program.exists():
        context = max(len(TOKENS), arguments.prompt + arguments.new) + 8
        satchel.export(gguf, program, recipe="keep", context=context, prefill_ar_len=128)
    return gguf, program


def row(gguf: Path, program: Path, kind: str, arguments: Any) -> str:
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        cells = [f"| {kind} | | |"]
        if arguments.peer:
            apart, same = logits_apart(gguf, program, arguments, work)
            cells = [f"| {kind} | {apart:.1e} | {same:.0%} |"]
        mine, theirs = speeds(gguf, program, arguments, work)
    for name in mine:
        cells.append(f" {mine[name]:.0f} | {theirs[name]:.0f} | {mine[name] / theirs[name]:.2f} |")
    return "".join(cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--peer", metavar="PYTHON", help="a Python with llama-cpp-python")
    parser.add_argument("--llama-bench", metavar="PROGRAM", help="llama.cpp's tool, for speed")
    parser.add_argument("--llama-quantize", metavar="PROGRAM", help="the same, for other types")
    parser.add_argument("--kinds", nargs="+", default=["Q4_K_M", "Q5_K_M", "Q6_K", "IQ4_NL"])
    parser.add_argument("--mixture", action="store_true", help="a mixture of experts")
    parser.add_argument("--prompt", type=int, default=256)
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where made files stay")
    parser.add_argument("--prepare", action="store_true", help="make the files, measure nothing")
    arguments = parser.parse_args()
    arguments.file = arguments.file.resolve()
    if not arguments.peer and not arguments.llama_bench:
        parser.error(
            "llama.cpp is missing: --peer PYTHON, or --llama-bench PROGRAM for speed alone"
        )
    if not arguments.peer and arguments.mixture:
        parser.error("--peer PYTHON makes mixtures of experts")
    if not (arguments.peer or arguments.llama_quantize) and set(arguments.kinds) != {AS_IS}:
        parser.error("--peer PYTHON, or --llama-quantize PROGRAM, makes files of other types")
    if arguments.prepare and not arguments.keep:
        parser.error("--prepare needs --keep FOLDER")
    with contextlib.ExitStack() as stack:
        made = arguments.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        made = made.resolve()
        made.mkdir(parents=True, exist_ok=True)
        source = arguments.file
        if arguments.mixture:
            source = made / "mixture.gguf"
            if not source.exists():
                peer(arguments, "mixture", arguments.file, source)
        files = {kind: prepare(source, kind, arguments, made) for kind in arguments.kinds}
        if arguments.prepare:
            return
        print("| type | logits apart | same token | prefill | llama.cpp | | decode | llama.cpp | |")
        print("|---|---|---|---|---|---|---|---|---|")
        for kind, (gguf, program) in files.items():
            print(row(gguf, program, kind, arguments), flush=True)


if __name__ == "__main__":
    main()
