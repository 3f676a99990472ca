"""Servers under load, in turns: tokens a second, time to the first token and between tokens.

    python benchmarks/serve_load.py smollm2-135m --llama-server llama.cpp/build/bin/llama-server
    python benchmarks/serve_load.py smollm2-135m llama3_2-1b --xllamacpp peers/xllamacpp/bin/python

Every server runs the same GGUF file, with as many threads, and has a place for every client; with
``--recipe 8da4w`` Satchel has 4-bit weights of its own kind, made of that file. llama.cpp rounds
activations to 8 bits; Satchel does with ``--activation-bits 8``, and else to 16.
Clients ask one question after the other, each about another passage of this project's documents,
and want answers of equal length. Each number of clients has a server of its own that has just been
started, so that no cache knows its prompts; servers take turns, and the table has the medians.

    python benchmarks/peers/vllm_folder.py llama3_2-1b SmolLM2/ llama-vllm
    OMP_NUM_THREADS=2 VLLM_CPU_KVCACHE_SPACE=4 vllm serve llama-vllm --port 8300 \\
        --max-num-seqs 64 --max-model-len 1024 --no-enable-prefix-caching &
    python benchmarks/serve_load.py llama3_2-1b --running vllm=http://127.0.0.1:8300

A server that runs already is asked as it is, by all numbers of clients: it must not know prompts.
vLLM's build for processors takes no GGUF file, and has random weights of the same shape in bf16.

llama3_2-1b has random weights (and SmolLM2's tokenizer), which make a text of no meaning: it is
sampled, for a greedy one runs in circles that Satchel would guess ahead.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from satchel.benchmark.load import LoadOptions, measure_load
from satchel.remote import Remote
from satchel.sources.random_weights import write_checkpoint
from satchel.sources.shapes import SHAPES
from satchel.sweeps.processes import Failed, run_json

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "peers"))
REAL = "smollm2-135m"
PER_CLIENT = 1024  # tokens of context for each
START_S, RUN_S = 120.0, 600.0
FIGURES = (("ttft_s", "p50"), ("ttft_s", "p99"), ("gap_s", "p50"), ("gap_s", "p99"))


@dataclass(frozen=True)
class Model:
    """One model as each server takes it."""

    name: str
    gguf: Path
    program: Path
    temperature: float


Command = Callable[[Model, int, int, int], list[str]]  # of a model, a port, clients and threads


def satchel(model: Model, port: int, clients: int, threads: int) -> list[str]:
    serve = [sys.executable, "-m", "satchel", "serve", f"model={model.program}"]
    return [*serve, f"--port={port}", f"--max-sequences={clients}", f"--threads={threads}"]


def llama_server(start: Sequence[str]) -> Command:
    def command(model: Model, port: int, clients: int, threads: int) -> list[str]:
        options = {
            "model": model.gguf,
            "parallel": clients,
            "ctx-size": clients * PER_CLIENT,
            "threads": threads,
            "threads-batch": threads,
            "host": "127.0.0.1",
            "port": port,
        }
        return [*start, *(str(p) for name, v in options.items() for p in (f"--{name}", v))]

    return command


def prepare(
    name: str,
    work: Path,
    recipe: str = "keep",
    as_they_are: bool = False,
    activation_bits: int | None = None,
) -> Model:
    """The GGUF file and the program of it."""
    log = work / "logs" / f"{name}.log"
    own = [sys.executable, "-m", "satchel"]
    real = Path(run_json([*own, "pull", REAL, "--json"], log)["path"])
    gguf = real
    if name != REAL:
        gguf = work / f"{name}.gguf"
        if not gguf.exists():
            from llamacpp_peer import write_gguf

            checkpoint = work / name
            write_checkpoint(name, checkpoint)
            write_gguf(checkpoint, gguf.with_suffix(".part"), SHAPES[name], tokenizer=real)
            gguf.with_suffix(".part").rename(gguf)
    bits = [f"--activation-bits={activation_bits}"] if activation_bits else []
    program = work / f"{name}-{recipe}{activation_bits or ''}.satchel"
    if not (as_they_are and program.exists()):
        export = ["export", str(gguf), "-o", str(program), f"--recipe={recipe}", *bits]
        run_json([*own, *export, "--force", "--context=8192", "--json"], log)
    return Model(name, gguf, program, 0.0 if name == REAL else 0.8)


def passages() -> list[str]:
    """Paragraphs of the documents, short and long."""
    found: list[str] = []
    for document in sorted((HERE.parent / "docs").glob("*.md")):
        paragraphs = document.read_text(encoding="utf-8").split("\n\n")
        found += [p for p in paragraphs if 100 < len(p) < 1500 and p[0].isalpha()]
    return found


def prompts(count: int, seed: int, most: int = 2) -> list[str]:
    """Questions about passages: no two are alike, and the same seed gives the same ones."""
    asks = ("Explain this in simple words", "Summarise this", "What is unclear in this", "Continue")
    texts = passages()
    chosen = random.Random(seed)
    return [
        f"{chosen.choice(asks)} ({number}): "
        + " ".join(chosen.sample(texts, chosen.randint(1, most)))
        for number in range(count)
    ]


@contextlib.contextmanager
def running(command: list[str], port: int, log: Path) -> Iterator[Remote]:
    """A server that answers; stopped at the end."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            end = time.monotonic() + START_S
            while not _answers(port):
                if process.poll() is not None or time.monotonic() > end:
                    raise Failed(f"{command[0]} did not start, see {log}")
                time.sleep(0.2)
            yield Remote(f"http://127.0.0.1:{port}", timeout=RUN_S)
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _answers(port: int) -> bool:
    try:
        with urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def measure(
    server: Command | str, model: Model, clients: int, given: argparse.Namespace, log: Path
) -> dict[str, Any]:
    port = free_port()
    requests = max(given.requests, -(-given.fewest // clients))
    with (
        contextlib.nullcontext(Remote(server, timeout=RUN_S))
        if isinstance(server, str)
        else running(server(model, port, clients, given.threads), port, log)
    ) as remote:
        warm = LoadOptions(1, 2, 16, prompts=prompts(2, seed=1))
        measure_load(remote, warm)
        options = LoadOptions(
            clients,
            requests,
            given.new_tokens,
            prompts=prompts(clients * requests, seed=0, most=given.passages),
            temperature=model.temperature,
        )
        return measure_load(remote, options)


def median(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {"tok_s": statistics.median(run["tok_s"] for run in runs)}
    for measure_name, share in FIGURES:
        values = [run[measure_name][share] for run in runs if run[measure_name][share] is not None]
        found[f"{measure_name}_{share}"] = statistics.median(values) if values else None
    return found | {
        "errors": sum(run["errors"] for run in runs),
        "requests": runs[0]["requests"],
        "prompt_tokens": runs[0]["prompt_tokens"],
        "new_tokens": runs[0]["new_tokens"],
        "rounds": len(runs),
    }


def rows(found: dict[str, dict[str, Any]], clients: int) -> list[str]:
    lines = []
    for name, figures in found.items():
        first = [_ms(figures[f"ttft_s_{share}"]) for share in ("p50", "p99")]
        gap = [_ms(figures[f"gap_s_{share}"]) for share in ("p50", "p99")]
        errors = f" | {figures['errors']} errors" if figures["errors"] else ""
        lines.append(
            f"| {clients} | {name} | {figures['tok_s']:.1f} | {first[0]} | {first[1]} | "
            f"{gap[0]} | {gap[1]} |{errors}"
        )
    return lines


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="+", help=f"{REAL}, or shapes such as llama3_2-1b")
    parser.add_argument("--llama-server", metavar="BINARY", help="llama.cpp's server")
    parser.add_argument("--xllamacpp", metavar="PYTHON", help="of an environment with xllamacpp")
    parser.add_argument("--running", metavar="NAME=URL", help="a server that runs already")
    parser.add_argument("--recipe", default="keep", help="of Satchel's file")
    parser.add_argument("--activation-bits", type=int, choices=(8, 16), help="of Satchel's file")
    parser.add_argument("--peers-only", action="store_true", help="Satchel is not measured")
    parser.add_argument("--as-they-are", action="store_true", help="files of a run before are used")
    parser.add_argument("--clients", default="1,4,16,64")
    parser.add_argument("--requests", type=int, default=3, help="of each client, at least")
    parser.add_argument("--fewest", type=int, default=8, help="requests of all clients, at least")
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--passages", type=int, default=2, help="of a prompt, at most")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", type=Path, default=Path("/tmp/satchel-serve-load"))
    parser.add_argument("--json", type=Path, metavar="FILE", help="all figures")
    given = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(given.threads)
    servers: dict[str, Command | str] = {} if given.peers_only else {"satchel": satchel}
    if given.llama_server:
        servers["llama-server"] = llama_server([given.llama_server])
    if given.xllamacpp:
        script = str(HERE / "peers" / "xllamacpp_server.py")
        servers["xllamacpp"] = llama_server([given.xllamacpp, script])
    if given.running:
        name, _, url = given.running.partition("=")
        servers[name] = url
    document: dict[str, Any] = {}
    for name in given.models:
        model = prepare(name, given.work, given.recipe, given.as_they_are, given.activation_bits)
        print(f"\n{name}: first token and gap between tokens in ms\n")
        print("| clients | server | tok/s | first p50 | p99 | gap p50 | p99 |\n|" + "---|" * 7)
        for clients in map(int, given.clients.split(",")):
            runs: dict[str, list[dict[str, Any]]] = {server: [] for server in servers}
            for number in range(given.rounds):
                for server, command in servers.items():
                    log = given.work / "logs" / f"{name}-{server}-{clients}-{number}.log"
                    try:
                        runs[server].append(measure(command, model, clients, given, log))
                    except Exception as error:  # the others' figures count
                        print(f"{server}, {clients} clients: {error}", file=sys.stderr)
            found = {server: median(of) for server, of in runs.items() if of}
            print("\n".join(rows(found, clients)), flush=True)
            document.setdefault(name, {})[clients] = found
    if given.json:
        given.json.write_text(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
