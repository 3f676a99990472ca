"""llama.cpp's perplexity over windows of tokens, for benchmarks/quality.py.

    python benchmarks/quality_llamacpp.py MODEL.gguf WINDOWS.json

Runs in the environment that has llama-cpp-python. The windows are Satchel's own, so that both
score the same tokens after the same ones.
"""

from __future__ import annotations

import json
import math
import sys
import time
from pathlib import Path

import numpy as np
from llama_cpp import Llama


def main() -> None:
    model, place = sys.argv[1:]
    windows = json.loads(Path(place).read_text())
    longest = max(len(tokens) for tokens, _ in windows)
    llama = Llama(model, n_ctx=longest, n_batch=512, logits_all=True, verbose=False)
    started = time.perf_counter()
    total, count = 0.0, 0
    for tokens, first in windows:
        llama.reset()
        llama.eval(tokens[:-1])
        for at in range(first, len(tokens)):
            row = np.asarray(llama.scores[at - 1], np.float64)
            row = row - row.max()
            total += math.log(np.exp(row).sum()) - row[tokens[at]]
            count += 1
    seconds = time.perf_counter() - started
    print(json.dumps({"ppl": math.exp(total / count), "tokens": count, "seconds": seconds}))


if __name__ == "__main__":
    main()
