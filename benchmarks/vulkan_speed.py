"""How fast a language model is on a GPU, and llama.cpp on the same one in the same run.

    python benchmarks/random_checkpoint.py llama3_2-1b /tmp/llama-1b
    satchel export /tmp/llama-1b -o llama.satchel --target vulkan --context 8192
    python benchmarks/vulkan_speed.py llama.satchel

    python benchmarks/peers/llamacpp_peer.py prepare /tmp/llama-1b /tmp/gguf
    python benchmarks/vulkan_speed.py llama.satchel --peer PYTHON --gguf /tmp/gguf/model.gguf

    SATCHEL_VULKAN_WITHOUT=cooperative_matrix python benchmarks/vulkan_speed.py llama.satchel

PYTHON is an environment with a llama-cpp-python whose llama.cpp was built for the GPU. Tokens are
random; every step brings its logits to the host, but for "chosen there": tokens are chosen on the
device, as answers are made, the likeliest or in the other ways that are named. Numbers are tokens a
second, medians of rounds that the two do in turns. Before them, how long the program takes to its
first token, with and without pipelines of an earlier run, and what of the device's memory is in use
(where nvidia-smi tells).
The last command measures what a GPU without cooperative matrices does.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from satchel.llm.sampling import SamplingOptions, token_rule
from satchel.runtime.program import Instance, Program

PROMPTS = (256, 2048)
DECODED = 128
TOGETHER = (1, 2, 4, 8, 16, 32)
CHAIN = 32  # tokens of a submission
CHOSEN = " chosen there"
WAYS = {
    CHOSEN: SamplingOptions(0.0),
    f"{CHOSEN}, temperature": SamplingOptions(0.8, top_k=0, top_p=1.0),
    f"{CHOSEN}, penalty": SamplingOptions(0.0, repetition_penalty=1.05),
    f"{CHOSEN}, top-k 50": SamplingOptions(1.0, top_k=50, top_p=1.0),
    f"{CHOSEN}, top-p 0.9": SamplingOptions(0.8, top_k=0, top_p=0.9),
    f"{CHOSEN}, all of them": SamplingOptions(0.8, 40, 0.95, 0.05, 1.1),
}


class Steps:
    """An instance, fed with tokens of one or of many sequences."""

    def __init__(self, path: Path, target: str) -> None:
        self.instance: Instance = Program(path, target=target).instance()
        (inputs,) = (
            m["inputs"] for m in self.instance.program.methods if m["name"] == "prefill_forward"
        )
        self.longest = int(inputs[0]["shape"][0][1])
        self.tokens = np.random.default_rng(0).integers(0, 1000, 4096).astype(np.int32)

    def read(self, sequence: int, count: int) -> None:
        prefill = self.instance.method("prefill_forward")
        for first in range(0, count, self.longest):
            size = min(self.longest, count - first)
            positions = np.arange(first, first + size, dtype=np.int32)
            last = np.array([size - 1], np.int32)
            prefill(self.tokens[:size], positions, last, np.full(size, sequence, np.int32))

    def decode(self, sequences: list[int], first: int, count: int) -> None:
        kv = self.instance.method("kv_forward")
        prefill = self.instance.method("prefill_forward")
        of, rows = np.array(sequences, np.int32), np.arange(len(sequences), dtype=np.int32)
        for position in range(first, first + count):
            tokens, at = self.tokens[: len(of)], np.full(len(of), position, np.int32)
            if len(of) == 1:
                kv(tokens, at, of)
            else:
                prefill(tokens, at, rows, of)

    def with_sequences(self, count: int, run: Callable[[list[int]], float]) -> float:
        sequences = [self.instance.open_sequence() for _ in range(count)]
        try:
            return run(sequences)
        finally:
            for sequence in sequences:
                self.instance.close_sequence(sequence)

    def prefill_rate(self, count: int) -> float:
        def run(sequences: list[int]) -> float:
            started = time.perf_counter()
            self.read(sequences[0], count)
            return count / (time.perf_counter() - started)

        return self.with_sequences(1, run)

    def decode_rate(self, together: int, steps: int) -> float:
        def run(sequences: list[int]) -> float:
            self.decode(sequences, 0, 4)  # what is made at first
            started = time.perf_counter()
            self.decode(sequences, 4, steps)
            return together * steps / (time.perf_counter() - started)

        return self.with_sequences(together, run)

    def chosen_rate(self, together: int, steps: int, how: SamplingOptions) -> float:
        def run(sequences: list[int]) -> float:
            method = self.instance.method("kv_forward" if together == 1 else "prefill_forward")
            position, numbers = 4, [[0.5] * together] * CHAIN
            text = self.tokens.tolist() if how.has_penalties else []
            rules = [token_rule(how, text)] * together
            self.decode(sequences, 0, position)

            def chain(tokens: list[int]) -> list[list[int]]:
                positions = [position] * together
                return method.run_chain(tokens, positions, sequences, rules, numbers)

            runs = chain([1] * together)
            started, done = time.perf_counter(), 0
            while done < steps:
                position += len(runs)
                runs = chain(runs[-1])
                done += len(runs)
            return together * done / (time.perf_counter() - started)

        return self.with_sequences(together, run)

    def measure(self) -> dict[str, float]:
        rates = {f"prefill {count}": self.prefill_rate(count) for count in PROMPTS}
        for together in TOGETHER:
            steps = DECODED if together == 1 else 32
            name = f"decode of {together}"
            chip = self.instance
            if chip.chooses_by_chance if together == 1 else chip.chooses_together:
                for way, how in WAYS.items():
                    rates[name + way] = self.chosen_rate(together, DECODED, how)
            rates[name] = self.decode_rate(together, steps)
        return rates


def load_seconds(path: Path, target: str) -> float:
    """To the first token, in a process of its own."""
    script = (
        "import sys, time\nfrom satchel.runtime.program import Program\n"
        "started = time.perf_counter()\n"
        "Program(sys.argv[1], target=sys.argv[2]).instance().method('kv_forward').run([1], [0])\n"
        "print(time.perf_counter() - started)"
    )
    command = [sys.executable, "-c", script, str(path), target]
    return float(subprocess.check_output(command, text=True))


def tell_loading(path: Path, target: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SATCHEL_CACHE"] = folder
        cold, warm = load_seconds(path, target), load_seconds(path, target)
    del os.environ["SATCHEL_CACHE"]
    size = path.stat().st_size
    print(f"file {size / 1e6:.0f} MB, first token after {cold:.2f} s, again {warm:.2f} s")


def tell_memory(before: int | None) -> int | None:
    """What of the device's memory is in use, in MiB; how much more than before is printed."""
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    try:
        used = int(subprocess.check_output(query, text=True).split()[0])
    except (OSError, subprocess.CalledProcessError, ValueError):
        return None
    if before is not None:
        print(f"memory of the device {used - before} MiB")
    return used


def medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(r[name] for r in rounds) for name in rounds[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=Path)
    parser.add_argument("--target", default="vulkan")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer", help="a Python that has llama-cpp-python for this GPU")
    parser.add_argument("--gguf", type=Path)
    arguments = parser.parse_args()
    tell_loading(arguments.program, arguments.target)
    used = tell_memory(None)
    steps = Steps(arguments.program, arguments.target)
    print(steps.instance.kernels)
    steps.measure()  # pipelines, memory
    tell_memory(used)
    ours: list[dict[str, float]] = []
    theirs: list[dict[str, float]] = []
    script = Path(__file__).parent / "peers" / "llamacpp_gpu.py"
    for _ in range(arguments.rounds):
        ours.append(steps.measure())
        if arguments.peer:
            command = [arguments.peer, str(script), str(arguments.gguf)]
            theirs.append(json.loads(subprocess.check_output(command, text=True)))
    peer = medians(theirs) if theirs else {}
    for name, rate in medians(ours).items():
        theirs_too = peer.get(name.partition(CHOSEN)[0])
        beside = (
            f"   llama.cpp {theirs_too:8.0f}   {rate / theirs_too:5.2f} x" if theirs_too else ""
        )
        print(f"{name:40} {rate:8.0f} tok/s{beside}")


if __name__ == "__main__":
    main()
