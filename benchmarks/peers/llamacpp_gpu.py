"""llama.cpp's rates on a GPU, for benchmarks/vulkan_speed.py.

    python benchmarks/peers/llamacpp_gpu.py MODEL.gguf

Runs in an environment with a llama-cpp-python whose llama.cpp was built for the GPU; prints one
JSON object of tokens a second.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from pathlib import Path
from typing import Any

import llama_cpp as api

PROMPTS = (256, 2048)
DECODED = 128
TOGETHER = (1, 2, 4, 8, 16, 32)
CONTEXT = 8192


def load_backends() -> None:
    """Builds with backends as libraries of their own look for them only where they are told."""
    folder = Path(api.__file__).parent / "lib"
    library = ctypes.CDLL(str(folder / "libggml.so"))
    load = getattr(library, "ggml_backend_load_all_from_path", None)
    if load is not None:
        load(str(folder).encode())


class Batches:
    """A model, fed with tokens of one or of many sequences."""

    def __init__(self, path: str) -> None:
        load_backends()
        api.llama_backend_init()
        settings = api.llama_model_default_params()
        settings.n_gpu_layers = 999
        self.model = api.llama_model_load_from_file(path.encode(), settings)
        if not self.model:
            raise SystemExit(f"llama.cpp cannot load {path}")
        context = api.llama_context_default_params()
        context.n_ctx, context.n_seq_max, context.kv_unified = CONTEXT, max(TOGETHER), True
        context.n_batch = context.n_ubatch = max(PROMPTS)
        self.context = api.llama_init_from_model(self.model, context)
        self.memory = api.llama_get_memory(self.context)
        self.batch: Any = api.llama_batch_init(max(PROMPTS), 0, 1)

    def run(self, tokens: list[tuple[int, int, int, bool]]) -> None:
        """(token, position, sequence, whether its logits are wanted)."""
        batch = self.batch
        batch.n_tokens = len(tokens)
        for i, (token, position, sequence, wanted) in enumerate(tokens):
            batch.token[i], batch.pos[i] = token, position
            batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = 1, sequence, wanted
        if api.llama_decode(self.context, batch):
            raise SystemExit("llama_decode failed")
        api.llama_synchronize(self.context)

    def prefill_rate(self, count: int) -> float:
        api.llama_memory_clear(self.memory, True)
        tokens = [(i * 7 % 1000, i, 0, i == count - 1) for i in range(count)]
        started = time.perf_counter()
        self.run(tokens)
        return count / (time.perf_counter() - started)

    def decode_rate(self, together: int, steps: int) -> float:
        api.llama_memory_clear(self.memory, True)

        def step(position: int) -> None:
            self.run([(position % 1000, position, sequence, True) for sequence in range(together)])

        for position in range(4):
            step(position)
        started = time.perf_counter()
        for position in range(4, 4 + steps):
            step(position)
        return together * steps / (time.perf_counter() - started)

    def measure(self) -> dict[str, float]:
        rates = {f"prefill {count}": self.prefill_rate(count) for count in PROMPTS}
        for together in TOGETHER:
            steps = DECODED if together == 1 else 32
            rates[f"decode of {together}"] = self.decode_rate(together, steps)
        return rates


def main() -> None:
    batches = Batches(sys.argv[1])
    batches.measure()
    print(json.dumps(batches.measure()))


if __name__ == "__main__":
    main()
