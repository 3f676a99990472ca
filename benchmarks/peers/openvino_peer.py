"""OpenVINO GenAI: int4 weights in groups of 32, converted by optimum-intel and nncf.

python benchmarks/peers/openvino_peer.py prepare CHECKPOINT_FOLDER OUT
python benchmarks/peers/openvino_peer.py bench OUT --threads 2 --json
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from verbs import Prepared, kv_bytes, main, read_config

MODEL = "openvino_model"


def weight_bytes_read(folder: Path) -> int:
    """The stored weights; a table that only the embedding's lookup uses is not read whole."""
    import openvino

    model = openvino.Core().read_model(folder / f"{MODEL}.xml")
    lookups, total = 0, 0
    for node in model.get_ordered_ops():
        if node.get_type_name() == "Constant":
            bits = node.get_output_element_type(0).bitwidth
            total += int(np.prod(node.get_output_shape(0))) * bits // 8
        if node.get_type_name() == "Gather":
            lookups += unshared_bytes(node.input_value(0))
    return total - lookups


def unshared_bytes(value: Any) -> int:
    """Constants that lead to a value through nodes that nothing else uses."""
    node = value.get_node()
    users = [target for output in node.outputs() for target in output.get_target_inputs()]
    if len(users) != 1:
        return 0
    if node.get_type_name() == "Constant":
        bits = int(node.get_output_element_type(0).bitwidth)
        return int(np.prod(node.get_output_shape(0))) * bits // 8
    return sum(unshared_bytes(source) for source in node.input_values())


def prepare(source: Path, out: Path) -> Prepared:
    program = Path(sys.executable).parent / "optimum-cli"
    command = [str(program), "export", "openvino", "--model", str(source)]
    command += ["--task", "text-generation-with-past", "--weight-format", "int4", "--sym"]
    # All layers: the output head too has 4 bits, as it has for the others.
    command += ["--group-size", "32", "--ratio", "1.0", "--all-layers", str(out)]
    subprocess.run(command, check=True, env={**os.environ, "HF_HUB_OFFLINE": "1"})
    config = read_config(source)
    read = weight_bytes_read(out)
    # Keys and values are kept in 8 bits by default.
    cache = kv_bytes(config, 1)
    return Prepared("OpenVINO GenAI", ".", config["vocab_size"], read, cache, "int4, group 32")


class OpenVino:
    def __init__(self, folder: Path, threads: int, context: int) -> None:
        import openvino
        import openvino_genai

        self.runtime, self.api = openvino, openvino_genai
        self.version = f"openvino-genai {openvino_genai.__version__}"
        self.pipeline = openvino_genai.LLMPipeline(
            str(folder), "CPU", INFERENCE_NUM_THREADS=threads
        )

    def generate(self, prompt: list[int], new_tokens: int) -> tuple[float, float]:
        ids = np.array([prompt], np.int64)
        inputs = self.api.TokenizedInputs(
            self.runtime.Tensor(ids), self.runtime.Tensor(np.ones_like(ids))
        )
        config = self.api.GenerationConfig()
        config.max_new_tokens, config.do_sample, config.ignore_eos = new_tokens, False, True
        measured = self.pipeline.generate(inputs, config).perf_metrics
        first = measured.get_ttft().mean / 1000
        return first, measured.get_tpot().mean / 1000 * (new_tokens - 1)


if __name__ == "__main__":
    main(__doc__ or "", prepare, OpenVino)
