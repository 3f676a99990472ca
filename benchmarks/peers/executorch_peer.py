"""ExecuTorch: XNNPACK with 8da4w in groups of 32, through its own LLM export.

python benchmarks/peers/executorch_peer.py prepare CHECKPOINT_FOLDER OUT
python benchmarks/peers/executorch_peer.py bench OUT --threads 2 --json
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from verbs import Prepared, kv_bytes, main, read_config

POSITIONS = 512
# Its class for each architecture; sizes come from the parameters' file.
CLASSES = {"llama": "llama3_2", "qwen3": "qwen3_0_6b", "phi3": "phi_4_mini"}
TOP_LEVEL = {"model.embed_tokens": "tok_embeddings", "model.norm": "norm", "lm_head": "output"}
IN_LAYER = {
    "self_attn.q_proj": "attention.wq",
    "self_attn.k_proj": "attention.wk",
    "self_attn.v_proj": "attention.wv",
    "self_attn.o_proj": "attention.wo",
    "self_attn.q_norm": "attention.q_norm_fn",
    "self_attn.k_norm": "attention.k_norm_fn",
    "input_layernorm": "attention_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "feed_forward.w1",
    "mlp.down_proj": "feed_forward.w2",
    "mlp.up_proj": "feed_forward.w3",
}


def parameters(config: dict[str, Any]) -> dict[str, Any]:
    """The sizes under the names that it reads. Rotary scaling is left out: it changes no speed."""
    return {
        "dim": config["hidden_size"],
        "n_layers": config["num_hidden_layers"],
        "n_heads": config["num_attention_heads"],
        "n_kv_heads": config["num_key_value_heads"],
        "head_dim": config["head_dim"],
        "hidden_dim": config["intermediate_size"],
        "vocab_size": config["vocab_size"],
        "norm_eps": config["rms_norm_eps"],
        "rope_theta": config["rope_theta"],
        "partial_rotary_factor": config.get("partial_rotary_factor", 1.0),
        "use_hf_rope": True,  # checkpoints keep the two halves of a head apart
        "use_qk_norm": config["model_type"] == "qwen3",
        "qk_norm_before_rope": config["model_type"] == "qwen3",
    }


def meta_name(name: str) -> str:
    stem = name.removesuffix(".weight")
    if stem in TOP_LEVEL:
        return f"{TOP_LEVEL[stem]}.weight"
    _, _, layer, rest = stem.split(".", 3)
    return f"layers.{layer}.{IN_LAYER[rest]}.weight"


def convert_weights(source: Path, path: Path, config: dict[str, Any]) -> None:
    """The checkpoint as one file with the names of Meta's."""
    import torch
    from safetensors.torch import load_file

    queries = config["num_attention_heads"] * config["head_dim"]
    keys = config["num_key_value_heads"] * config["head_dim"]
    fused = {
        "qkv_proj": {"q_proj": queries, "k_proj": keys, "v_proj": keys},
        "gate_up_proj": dict.fromkeys(("gate_proj", "up_proj"), config["intermediate_size"]),
    }
    weights = {}
    for file in sorted(source.glob("*.safetensors")):
        for name, tensor in load_file(file).items():
            parts = fused.get(name.split(".")[-2])
            if parts is None:
                weights[meta_name(name)] = tensor
                continue
            for part, rows in zip(parts, torch.split(tensor, list(parts.values())), strict=True):
                weights[meta_name(name.replace(name.split(".")[-2], part))] = rows.clone()
    weights.setdefault("output.weight", weights["tok_embeddings.weight"])
    torch.save(weights, path)


def prepare(source: Path, out: Path) -> Prepared:
    config = read_config(source)
    checkpoint, settings = out / "checkpoint.pth", out / "params.json"
    convert_weights(source, checkpoint, config)
    settings.write_text(json.dumps(parameters(config)))
    command = [
        sys.executable,
        "-m",
        "executorch.extension.llm.export.export_llm",
        f"base.model_class={CLASSES[config['model_type']]}",
        f"base.checkpoint={checkpoint}",
        f"base.params={settings}",
        "model.use_kv_cache=true",
        "model.use_sdpa_with_kv_cache=true",
        "model.dtype_override=fp32",
        f"export.max_seq_length={POSITIONS}",
        f"export.max_context_length={POSITIONS}",
        f"export.output_name={out / 'model.pte'}",
        "quantization.qmode=8da4w",
        "quantization.group_size=32",
        "quantization.embedding_quantize='4,32'",
        "backend.xnnpack.enabled=true",
        "backend.xnnpack.extended_ops=true",
        "hydra.run.dir=.",
    ]
    # The exporter calls flatc, which lies beside the interpreter.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    # In a folder that is called executorch it would look for its modules elsewhere.
    folder = out / "hydra"
    folder.mkdir(exist_ok=True)
    subprocess.run(command, check=True, cwd=folder, env={**os.environ, "PATH": path})
    checkpoint.unlink()
    embedding = config["vocab_size"] * config["hidden_size"]
    lookup = embedding // 2 + embedding // 32 * 4  # 4-bit codes and a float per group
    read = (out / "model.pte").stat().st_size - lookup
    return Prepared(
        "ExecuTorch",
        "model.pte",
        config["vocab_size"],
        read,
        kv_bytes(config, 4),
        "8da4w, group 32",
    )


class ExecuTorch:
    def __init__(self, path: Path, threads: int, context: int) -> None:
        from importlib.metadata import version

        import torch
        from executorch.extension.llm.custom_ops import custom_ops  # noqa: F401
        from executorch.extension.pybindings import portable_lib
        from executorch.kernels import quantized  # noqa: F401

        self.torch, self.version = torch, f"executorch {version('executorch')}"
        if context > POSITIONS:
            raise SystemExit(f"the model was exported for {POSITIONS} positions, not {context}")
        portable_lib._unsafe_reset_threadpool(threads)
        self.module = portable_lib._load_for_executorch(str(path))

    def feed(self, tokens: list[int], position: int) -> int:
        ids = self.torch.tensor([tokens], dtype=self.torch.long)
        at = self.torch.tensor([position], dtype=self.torch.long)
        return int(self.module.forward((ids, at))[0].argmax())

    def generate(self, prompt: list[int], new_tokens: int) -> tuple[float, float]:
        started = time.perf_counter()
        token = self.feed(prompt, 0)
        first = time.perf_counter()
        for number in range(new_tokens - 1):
            token = self.feed([token], len(prompt) + number)
        return first - started, time.perf_counter() - first


if __name__ == "__main__":
    main(__doc__ or "", prepare, ExecuTorch)
