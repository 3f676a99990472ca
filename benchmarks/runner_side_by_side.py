"""satchel-run beside llama.cpp's and ExecuTorch's runners: size, first token, peak memory.

    python benchmarks/runner_side_by_side.py smollm2.satchel --runner build/runner/satchel-run \\
        --gguf smollm2.gguf --llama-cli llama-completion \\
        --pte smollm2.pte --executorch executorch/bin/python --rounds 5

Every run is a process of its own that reads a prompt and writes a few tokens, in turn, from files
that were read once before. The time is from the start of the process to the first byte of its
answer; memory is the most that the system counted for it, mapped weights that were read included.
Sizes are of the program and of its own libraries that it has loaded by then: not the system's, nor
Python's. ExecuTorch's package has its runner as a Python module (``_llm_runner``), so that there
the interpreter and torch, which the module imports, are part of time and memory; its own clock
tells what it took to load the file and to come to the first token.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import statistics
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

PROMPT = "The capital of France is"
TOKENS = "4"

# Arguments: program, tokenizer, prompt, tokens.
EXECUTORCH = """
import sys
import executorch.extension.llm.custom_ops.custom_ops  # operators that the program names
import executorch.kernels.quantized
from executorch.extension.llm.runner import GenerationConfig, TextLLMRunner
program, tokenizer, prompt, tokens = sys.argv[1:]
def told(stats):
    load = stats.model_load_end_ms - stats.model_load_start_ms
    print("own clock", load + stats.first_token_ms - stats.inference_start_ms, file=sys.stderr)
runner = TextLLMRunner(program, tokenizer)
config = GenerationConfig(max_new_tokens=int(tokens), temperature=0.0, echo=False)
runner.generate(prompt, config, None, told)  # prints by itself
"""


@dataclass(frozen=True)
class Contender:
    name: str
    command: list[str]
    own: str  # what the paths of its own program and libraries match


@dataclass(frozen=True)
class Start:
    text: str
    first_s: float
    peak_bytes: int
    own_ms: float | None  # by its own clock


def loaded_bytes(process: int, own: str) -> int:
    """Of the program and the libraries of its own that a process has mapped."""
    lines = Path(f"/proc/{process}/maps").read_text().splitlines()
    paths = {
        words[5] for line in lines if "x" in (words := line.split(maxsplit=5))[1] and words[5:]
    }
    return sum(Path(path).stat().st_size for path in paths if re.search(own, path))


def start(contender: Contender, *, sized: bool = False) -> tuple[Start, int]:
    """One run, from its start to its first byte, its memory at the end, and its size if asked."""
    size = 0
    with tempfile.TemporaryFile("w+") as remarks:
        began = time.perf_counter()
        process = subprocess.Popen(
            contender.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=remarks
        )
        assert process.stdout is not None
        text = process.stdout.read(1)
        first = time.perf_counter() - began
        if sized and text:
            process.send_signal(signal.SIGSTOP)
            size = loaded_bytes(process.pid, contender.own)
            process.send_signal(signal.SIGCONT)
        text += process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        remarks.seek(0)
        said = remarks.read()
    if not text or process.returncode:
        raise SystemExit(f"{contender.name}: status {process.returncode}: {said[-2000:]}")
    own = re.search(r"own clock ([\d.]+)", said)
    found = Start(text.decode(), first, usage.ru_maxrss * 1024, float(own[1]) if own else None)
    return found, size


def contenders(given: argparse.Namespace) -> list[Contender]:
    ours = [given.runner, "run", str(given.program), PROMPT, "--raw", "--max-new-tokens", TOKENS]
    ours += ["--temperature", "0", "--threads", given.threads]
    found = [Contender("satchel-run", ours, re.escape(str(Path(given.runner).resolve())))]
    if given.llama_cli and given.gguf:
        theirs = [given.llama_cli, "-m", str(given.gguf), "-p", PROMPT, "-n", TOKENS, "--temp", "0"]
        theirs += ["-no-cnv", "--no-display-prompt", "--no-warmup", "-t", given.threads]
        found.append(Contender("llama.cpp", theirs, "llama|ggml|libmtmd"))
    if given.executorch and given.pte:
        tokenizer = given.pte.with_suffix(".tokenizer.json")
        theirs = [given.executorch, "-c", EXECUTORCH, str(given.pte), str(tokenizer)]
        own = "/executorch/.*_llm_runner|/libexecutorch"
        found.append(Contender("ExecuTorch (Python)", [*theirs, PROMPT, TOKENS], own))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("program", type=Path)
    parser.add_argument("--runner", required=True)
    parser.add_argument("--gguf", type=Path)
    parser.add_argument("--llama-cli", help="llama-completion, or a llama-cli that is old enough")
    parser.add_argument("--pte", type=Path, help="with its tokenizer beside it")
    parser.add_argument("--executorch", metavar="PYTHON", help="a Python with executorch")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", default="2")
    given = parser.parse_args()
    rivals = contenders(given)
    sizes = {one.name: start(one, sized=True)[1] for one in rivals}  # and the files are read
    runs: dict[str, list[Start]] = {one.name: [] for one in rivals}
    for _ in range(given.rounds):
        for one in rivals:
            runs[one.name].append(start(one)[0])
    print("| | program | start to first token | by its own clock | peak memory | text |")
    print("|---|---|---|---|---|---|")
    for name, found in runs.items():
        first = statistics.median(run.first_s for run in found) * 1000
        peak = statistics.median(run.peak_bytes for run in found) / 1e6
        clocks = [run.own_ms for run in found if run.own_ms is not None]
        own = f"{statistics.median(clocks):.0f} ms" if clocks else ""
        text = " ".join(found[0].text.partition("PyTorchObserver")[0].split())
        size = f"{sizes[name] / 1e6:.1f} MB"
        print(f"| {name} | {size} | {first:.0f} ms | {own} | {peak:.0f} MB | {text} |")


if __name__ == "__main__":
    main()
