"""llama.cpp through its own llama-bench, as packages of it bring it: nothing is compiled.

    python benchmarks/peers/llama_bench_peer.py prepare CHECKPOINT_FOLDER OUT
    python benchmarks/peers/llama_bench_peer.py bench OUT --threads 2 --json

LLAMA_BENCH names the tool where it is not on the path. The model is that of llamacpp_peer.py. The
tool warms up once, whatever --warmup says; its answer begins where the prompt ends, as ours does.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from pathlib import Path
from typing import Any

from llamacpp_peer import prepare
from verbs import Measured, main


def llama_bench(model: Path, arguments: argparse.Namespace, *options: str) -> dict[str, Any]:
    """What it says about one test."""
    tool = os.environ.get("LLAMA_BENCH") or "llama-bench"
    whole = str(max(512, arguments.prompt_tokens))  # the prompt in one go
    command = [tool, "--model", str(model), "--output", "json", "--batch-size", whole]
    command += ["--ubatch-size", whole, "--threads", str(arguments.threads)]
    command += ["--repetitions", str(arguments.runs), *options]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    (found,) = json.loads(done.stdout)
    return dict(found)


def measure(model: Path, arguments: argparse.Namespace) -> Measured:
    prompt, answer = str(arguments.prompt_tokens), arguments.new_tokens
    read = llama_bench(model, arguments, "--n-prompt", prompt, "--n-gen", "0")
    written = llama_bench(
        model, arguments, "--n-prompt", "0", "--n-gen", str(answer), "--n-depth", prompt
    )
    # The first token of an answer comes with the prompt.
    others = [each / 1e9 * (answer - 1) / answer for each in written["samples_ns"]]
    runs = list(zip((each / 1e9 for each in read["samples_ns"]), others, strict=True))
    return Measured(f"llama.cpp {read['build_number']} ({read['build_commit']})", runs)


if __name__ == "__main__":
    main(__doc__ or "", prepare, measure=measure)
