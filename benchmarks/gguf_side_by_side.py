"""GGUF files of several types as they are, in Satchel and llama.cpp: logits and speed.

    python benchmarks/gguf_side_by_side.py smollm2.gguf --peer llama/bin/python
    python benchmarks/gguf_side_by_side.py smollm2.gguf --peer … --mixture --kinds Q4_K_M Q6_K

llama.cpp makes a file of each type; both run it, one after the other in each round. ``--mixture``
takes random weights of a mixture of experts in the place of the file's, and its tokenizer. Of the
logits: how far they are apart relative to their size, and how often the likeliest token is the
same.
"""

from __future__ import annotations

import argparse
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


def speeds(gguf: Path, program: Path, arguments: Any, work: Path) -> list[dict[str, float]]:
    """Tokens per second of each, medians over the rounds."""
    options = [f"--prompt-tokens={arguments.prompt}", f"--new-tokens={arguments.new}"]
    options += [f"--threads={arguments.threads}", "--runs=2", "--json"]
    folder = work / "peer"
    folder.mkdir()
    llama = [arguments.peer, str(PEERS / "llamacpp_peer.py")]
    subprocess.run([*llama, "prepare", str(gguf), str(folder)], check=True, stdout=sys.stderr)
    commands = [
        [sys.executable, "-m", "satchel", "bench", str(program), *options],
        [*llama, "bench", str(folder), *options],
    ]
    rounds = [
        [run_json(command, work / "log.txt") for command in commands]
        for _ in range(arguments.rounds)
    ]
    names = ("prefill_tok_s", "decode_tok_s")
    return [{n: statistics.median(float(r[i][n]) for r in rounds) for n in names} for i in range(2)]


def row(source: Path, kind: str, arguments: Any) -> str:
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        gguf = work / f"{kind}.gguf"
        peer(arguments, "quantize", source, gguf, kind)
        context = max(len(TOKENS), arguments.prompt + arguments.new) + 8
        program = satchel.export(
            gguf, work / "ours.satchel", recipe="keep", context=context, prefill_ar_len=128
        )
        apart, same = logits_apart(gguf, program, arguments, work)
        mine, theirs = speeds(gguf, program, arguments, work)
        cells = [f"| {kind} | {apart:.1e} | {same:.0%} |"]
        for name in mine:
            cells.append(
                f" {mine[name]:.0f} | {theirs[name]:.0f} | {mine[name] / theirs[name]:.2f} |"
            )
        return "".join(cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--peer", required=True, help="the Python that has llama-cpp-python")
    parser.add_argument("--kinds", nargs="+", default=["Q4_K_M", "Q5_K_M", "Q6_K", "IQ4_NL"])
    parser.add_argument("--mixture", action="store_true", help="a mixture of experts")
    parser.add_argument("--prompt", type=int, default=256)
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    arguments.file = arguments.file.resolve()
    print("| type | logits apart | same token | prefill | llama.cpp | | decode | llama.cpp | |")
    print("|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        source = arguments.file
        if arguments.mixture:
            source = Path(folder) / "mixture.gguf"
            peer(arguments, "mixture", arguments.file, source)
        for kind in arguments.kinds:
            print(row(source, kind, arguments), flush=True)


if __name__ == "__main__":
    main()
