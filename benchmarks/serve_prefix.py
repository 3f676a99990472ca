"""Clients whose prompts begin alike: the time to the first token beside prompts that do not.

    python benchmarks/serve_prefix.py smollm2-135m --clients 16 --prefix-words 900

Both runs have prompts of the same length at a server that has just been started. In one the clients
share all words before the question, as with one system prompt; in the other each has its own. All
ask at the same moment. A third run asks again with the words that were shared, which the cache has.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from serve_load import REAL, Model, free_port, prepare, running, satchel

from satchel.benchmark.load import LoadOptions, measure_load
from satchel.remote import Remote


def measure(model: Model, given: argparse.Namespace, shared: bool) -> list[dict[str, Any]]:
    """What the clients saw, and with shared words what they saw when they asked again."""
    port = free_port()
    log = given.work / "logs" / f"{model.name}-prefix-{shared}.log"
    words = {"shared_words" if shared else "prompt_words": given.prefix_words}

    def load(remote: Remote, seed: int, **more: int) -> dict[str, Any]:
        options = LoadOptions(given.clients, 1, given.new_tokens, seed=seed, **{**words, **more})
        return measure_load(remote, options)

    with running(satchel(model, port, given.clients, given.threads), port, log) as remote:
        load(remote, 7, **dict.fromkeys(words, 0))  # until weights are in memory
        runs = [load(remote, 0)]
        return [*runs, load(remote, 0)] if shared else runs


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", nargs="?", default=REAL)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--prefix-words", type=int, default=900, help="about 1,000 tokens")
    parser.add_argument("--new-tokens", type=int, default=16)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--work", type=Path, default=Path("/tmp/satchel-serve-load"))
    parser.add_argument("--as-they-are", action="store_true", help="files of a run before are used")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    model = prepare(given.model, given.work, as_they_are=given.as_they_are)
    (own,) = measure(model, given, shared=False)
    first, again = measure(model, given, shared=True)
    found = {"own": own, "shared": first, "shared again": again}
    if given.json:
        print(json.dumps(found))
        return
    print("| prefix | prompt tokens | of them cached | first token p50 | p99 |\n|" + "---|" * 5)
    for name, run in found.items():
        each = run["prompt_tokens"] / run["requests"]
        share = run["cached_tokens"] / run["prompt_tokens"]
        times = [f"{run['ttft_s'][p]:.2f} s" for p in ("p50", "p99")]
        print(f"| {name} | {each:.0f} | {share:.0%} | {times[0]} | {times[1]} |")


if __name__ == "__main__":
    main()
