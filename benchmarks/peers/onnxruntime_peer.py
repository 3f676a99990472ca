"""ONNX Runtime GenAI: int4 weights in blocks of 32 from its own model builder.

python benchmarks/peers/onnxruntime_peer.py prepare CHECKPOINT_FOLDER OUT
python benchmarks/peers/onnxruntime_peer.py bench OUT --threads 2 --json
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from verbs import Prepared, kv_bytes, main, read_config

LOOKUPS = {"Gather", "GatherBlockQuantized"}
ROTARY_TABLES = {"cos_cache", "sin_cache"}


def weight_bytes_read(path: Path) -> int:
    """All stored weights but those that only a lookup uses."""
    import onnx

    graph = onnx.load(path, load_external_data=False).graph
    multiplied = {i for node in graph.node if node.op_type not in LOOKUPS for i in node.input}
    total = 0
    for tensor in graph.initializer:
        if tensor.name in multiplied - ROTARY_TABLES:
            bits = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize * 8
            if tensor.data_type in (onnx.TensorProto.INT4, onnx.TensorProto.UINT4):
                bits = 4
            total += math.prod(tensor.dims) * bits // 8
    return total


def prepare(source: Path, out: Path) -> Prepared:
    command = [sys.executable, "-m", "onnxruntime_genai.models.builder"]
    command += ["-i", str(source), "-o", str(out), "-p", "int4", "-e", "cpu"]
    command += ["-c", str(out / "cache"), "--extra_options"]
    # Level 4: activations are quantised to 8 bits, as in 8da4w.
    command += ["int4_block_size=32", "int4_accuracy_level=4", "int4_is_symmetric=true"]
    command += ["prune_lm_head=true"]  # logits of the last prompt token only, as the others
    subprocess.run(command, check=True)
    config = read_config(source)
    read = weight_bytes_read(out / "model.onnx")
    cache = kv_bytes(config, 4)
    return Prepared("ONNX Runtime GenAI", ".", config["vocab_size"], read, cache, "int4, block 32")


class OnnxRuntime:
    def __init__(self, folder: Path, threads: int, context: int) -> None:
        import onnxruntime_genai

        self.api, self.version = (
            onnxruntime_genai,
            f"onnxruntime-genai {onnxruntime_genai.__version__}",
        )
        config = onnxruntime_genai.Config(str(folder))
        options: dict[str, Any] = {"intra_op_num_threads": threads, "inter_op_num_threads": 1}
        overlay = {"model": {"decoder": {"session_options": options}}}
        config.overlay(json.dumps(overlay))
        self.model = onnxruntime_genai.Model(config)
        self.context = context

    def generate(self, prompt: list[int], new_tokens: int) -> tuple[float, float]:
        parameters = self.api.GeneratorParams(self.model)
        total = len(prompt) + new_tokens
        parameters.set_search_options(do_sample=False, min_length=total, max_length=total)
        generator = self.api.Generator(self.model, parameters)
        started = time.perf_counter()
        generator.append_tokens(prompt)  # runs the prompt
        generator.generate_next_token()
        first = time.perf_counter()
        for _ in range(new_tokens - 1):
            generator.generate_next_token()
        return first - started, time.perf_counter() - first


if __name__ == "__main__":
    main(__doc__ or "", prepare, OnnxRuntime)
