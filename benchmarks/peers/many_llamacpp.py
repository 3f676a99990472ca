"""llama.cpp's rate for several sequences in one ``llama_batch``, for benchmarks/many_sequences.py.

    python benchmarks/peers/many_llamacpp.py MODEL.gguf --sequences 1,2,4 --threads 2

Runs in an environment that has llama-cpp-python; prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from typing import Any

import llama_cpp as api
import numpy as np


class Batches:
    """A model whose sequences share a cache; each step is one batch."""

    def __init__(self, path: str, threads: int, sequences: int, context: int) -> None:
        api.llama_backend_init()
        self.model = api.llama_model_load_from_file(path.encode(), api.llama_model_default_params())
        settings = api.llama_context_default_params()
        settings.n_ctx = sequences * context
        settings.n_batch = settings.n_ubatch = context
        settings.n_seq_max = sequences
        settings.kv_unified = True  # so that sequences can share a prompt's rows
        settings.n_threads = settings.n_threads_batch = threads
        self.context = api.llama_init_from_model(self.model, settings)
        self.memory = api.llama_get_memory(self.context)
        self.vocabulary = api.llama_vocab_n_tokens(api.llama_model_get_vocab(self.model))
        self.batch = api.llama_batch_init(context, 0, 1)

    def run(self, tokens: list[tuple[int, int, int, bool]]) -> list[int]:
        """(token, position, sequence, whether its logits are wanted): the likeliest next ones."""
        batch: Any = self.batch
        batch.n_tokens = len(tokens)
        for i, (token, position, sequence, wanted) in enumerate(tokens):
            batch.token[i], batch.pos[i] = token, position
            batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = 1, sequence, wanted
        if api.llama_decode(self.context, batch):
            raise SystemExit("llama_decode failed")
        return [self._likeliest(i) for i, token in enumerate(tokens) if token[3]]

    def _likeliest(self, row: int) -> int:
        logits = api.llama_get_logits_ith(self.context, row)
        return int(np.ctypeslib.as_array(logits, (self.vocabulary,)).argmax())

    def read_prompt(self, prompt: list[int]) -> float:
        """Into sequence 0, from nothing; the seconds it took."""
        api.llama_memory_clear(self.memory, True)
        started = time.perf_counter()
        last = len(prompt) - 1
        self.run([(token, i, 0, i == last) for i, token in enumerate(prompt)])
        return time.perf_counter() - started

    def step_seconds(self, prompt: list[int], count: int, steps: int) -> list[float]:
        """Of steps that give every sequence its next token, all behind the same prompt."""
        self.read_prompt(prompt)
        for sequence in range(1, count):
            api.llama_memory_seq_cp(self.memory, 0, sequence, -1, -1)
        tokens, seconds = [3] * count, []
        for step in range(steps):
            started = time.perf_counter()
            at = len(prompt) + step
            tokens = self.run([(token, at, i, True) for i, token in enumerate(tokens)])
            seconds.append(time.perf_counter() - started)
        return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--sequences", default="1,2,4,8,16,32")
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    counts = [int(n) for n in given.sequences.split(",")]
    room = given.context + given.steps + 8
    batches = Batches(given.model, given.threads, max(counts), room)
    prompt = [5 + i % 200 for i in range(given.context)]
    batches.read_prompt(prompt)  # so that weights are in memory
    prefill = given.context / batches.read_prompt(prompt)
    rates = {
        count: count / statistics.median(batches.step_seconds(prompt, count, given.steps + 3)[3:])
        for count in counts
    }
    print(json.dumps({"prefill_tok_s": prefill, "together_tok_s": rates}))


if __name__ == "__main__":
    main()
