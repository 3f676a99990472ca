"""What all peers share: the verbs prepare and bench, timing, and the JSON they print.

A peer's script runs with the interpreter of that peer's own environment, so nothing here may need
more than the standard library.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

PREPARED = "prepared.json"


@dataclass
class Prepared:
    """What ``prepare`` leaves in its folder beside the model itself."""

    peer: str
    model: str  # the file or folder to load, relative to the folder
    vocabulary: int
    weight_bytes_read: int  # by one decoded token: all weights but the rows of a lookup
    kv_bytes_per_position: int
    precision: str
    seconds: float = 0.0
    peak_rss_bytes: int = 0
    details: dict[str, Any] = field(default_factory=dict)


class Engine(Protocol):
    version: str

    def generate(self, prompt: list[int], new_tokens: int) -> tuple[float, float]:
        """Greedy, from an empty cache: seconds to the first token, seconds for the others."""


@dataclass
class Measured:
    """Seconds to the first token and for the others, of each run."""

    version: str
    runs: list[tuple[float, float]]
    load_s: float | None = None  # a tool that measures by itself may not tell


Prepare = Callable[[Path, Path], Prepared]
Load = Callable[[Path, int, int], Engine]  # model, threads, context
Measure = Callable[[Path, argparse.Namespace], Measured]  # for tools that measure by themselves


def read_config(checkpoint: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((checkpoint / "config.json").read_text())
    return config


def kv_bytes(config: dict[str, Any], element_bytes: int) -> int:
    """Of all layers, keys and values, for one position."""
    width = config["num_key_value_heads"] * config["head_dim"]
    return 2 * int(config["num_hidden_layers"]) * int(width) * element_bytes


def peak_rss_bytes() -> int:
    """Of this process and of those that it ran.

    getrusage counts what whoever started a process held at that moment, which may be more than all
    that the process itself ever held; VmHWM does not.
    """
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    if sys.platform != "linux":
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return max(own, children) * (1 if sys.platform == "darwin" else 1024)
    lines = Path("/proc/self/status").read_text().splitlines()
    own = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
    return max(own, children) * 1024


def folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@contextlib.contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Native libraries print where they like; standard output is for one JSON object."""
    sys.stdout.flush()
    saved = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(saved, 1)
        os.close(saved)


def _prepare(prepare: Prepare, arguments: argparse.Namespace) -> dict[str, Any]:
    arguments.out.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    prepared = prepare(arguments.source.resolve(), arguments.out.resolve())
    prepared.seconds = time.perf_counter() - started
    prepared.peak_rss_bytes = peak_rss_bytes()
    document = asdict(prepared)
    (arguments.out / PREPARED).write_text(json.dumps(document, indent=1))
    return document


def _timed(load: Load, prepared: Prepared, arguments: argparse.Namespace) -> Measured:
    """The runs of an engine that lives in this process."""
    prompt_tokens, new_tokens = arguments.prompt_tokens, arguments.new_tokens
    generator = random.Random(0)
    # Ids below 32,000 are plain tokens in every vocabulary that is used here.
    top = min(prepared.vocabulary, 32000)

    def run() -> tuple[float, float]:
        # A new prompt each time: some peers keep the cache of an old one.
        prompt = [generator.randrange(300, top) for _ in range(prompt_tokens)]
        return engine.generate(prompt, new_tokens)

    started = time.perf_counter()
    engine = load(arguments.model / prepared.model, arguments.threads, prompt_tokens + new_tokens)
    load_s = time.perf_counter() - started
    for _ in range(arguments.warmup):
        run()
    return Measured(engine.version, [run() for _ in range(arguments.runs)], load_s)


def _told(prepared: Prepared, found: Measured, arguments: argparse.Namespace) -> dict[str, Any]:
    prompt_tokens, new_tokens = arguments.prompt_tokens, arguments.new_tokens
    first = [seconds for seconds, _ in found.runs]
    prefill = [prompt_tokens / seconds for seconds in first]
    decode = [(new_tokens - 1) / rest for _, rest in found.runs if rest > 0] or [0.0]
    filled = prompt_tokens + new_tokens // 2
    loading = {} if found.load_s is None else {"load_s": found.load_s}
    return {
        "peer": prepared.peer,
        "version": found.version,
        "precision": prepared.precision,
        "prompt_tokens": prompt_tokens,
        "new_tokens": new_tokens,
        "runs": arguments.runs,
        "threads": arguments.threads,
        "prefill_tok_s": statistics.median(prefill),
        "prefill_tok_s_spread": [min(prefill), max(prefill)],
        "decode_tok_s": statistics.median(decode),
        "decode_tok_s_spread": [min(decode), max(decode)],
        "ttft_s": statistics.median(first),
        "samples": {"prefill_tok_s": prefill, "decode_tok_s": decode, "ttft_s": first},
        **loading,
        "bytes_per_token": prepared.weight_bytes_read + filled * prepared.kv_bytes_per_position,
        "peak_rss_bytes": peak_rss_bytes(),
    }


def main(
    about: str, prepare: Prepare, load: Load | None = None, measure: Measure | None = None
) -> None:
    """The command line of a peer's script: it has an engine to load, or measures by itself."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    verb = verbs.add_parser("prepare", help="convert and quantise a checkpoint for this peer")
    verb.add_argument("source", type=Path, help="a checkpoint's folder")
    verb.add_argument("out", type=Path, help="the folder to write to")
    verb = verbs.add_parser("bench", help="measure what prepare has written")
    verb.add_argument("model", type=Path, help="the folder that prepare wrote")
    verb.add_argument("--prompt-tokens", type=int, default=256)
    verb.add_argument("--new-tokens", type=int, default=64)
    verb.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    verb.add_argument("--warmup", type=int, default=1)
    verb.add_argument("--runs", type=int, default=3)
    for verb in verbs.choices.values():
        verb.add_argument("--json", action="store_true", help="one JSON object")
    arguments = parser.parse_args()
    with stdout_to_stderr():
        if arguments.verb == "prepare":
            document = _prepare(prepare, arguments)
        else:
            prepared = Prepared(**json.loads((arguments.model / PREPARED).read_text()))
            if measure is not None:
                found = measure(arguments.model / prepared.model, arguments)
            else:
                assert load is not None
                found = _timed(load, prepared, arguments)
            document = _told(prepared, found, arguments)
    if arguments.json:
        print(json.dumps(document))
        return
    for name, value in document.items():
        print(f"{name:24} {value}")
