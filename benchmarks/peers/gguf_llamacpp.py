"""GGUF files by llama.cpp: of another type, of a mixture of experts, and the logits that it finds.

python benchmarks/peers/gguf_llamacpp.py quantize SOURCE.gguf OUT.gguf Q4_K_M
python benchmarks/peers/gguf_llamacpp.py mixture TOKENIZER.gguf OUT.gguf
python benchmarks/peers/gguf_llamacpp.py logits FILE.gguf OUT.npz --tokens 1 2 3
"""

from __future__ import annotations

import argparse
import ctypes
from pathlib import Path

import numpy as np
from llamacpp_peer import copy_tokenizer, describe

# Qwen3-MoE, made small: every size is one that K-quants can have.
CONFIG = {
    "max_position_embeddings": 4096,
    "hidden_size": 1024,
    "num_hidden_layers": 6,
    "intermediate_size": 2048,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e6,
    "vocab_size": 49152,
}
EXPERTS, USED, WIDTH = 16, 4, 512


def quantize(source: Path, out: Path, kind: str) -> None:
    import llama_cpp

    settings = llama_cpp.llama_model_quantize_default_params()
    settings.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{kind}")
    settings.allow_requantize = True
    failed = llama_cpp.llama_model_quantize(
        str(source).encode(), str(out).encode(), ctypes.byref(settings)
    )
    if failed:
        raise SystemExit(f"llama.cpp cannot make {kind} of {source}")


def mixture(tokenizer: Path, out: Path) -> None:
    """Random weights in 16 bits, with the tokenizer of another file."""
    import gguf

    rng = np.random.default_rng(0)
    hidden, head = CONFIG["hidden_size"], CONFIG["head_dim"]
    queries, keys = CONFIG["num_attention_heads"] * head, CONFIG["num_key_value_heads"] * head
    writer = gguf.GGUFWriter(out, "qwen3moe")
    describe(writer, CONFIG)
    writer.add_expert_count(EXPERTS)
    writer.add_expert_used_count(USED)
    writer.add_expert_feed_forward_length(WIDTH)
    copy_tokenizer(writer, tokenizer, int(CONFIG["vocab_size"]))

    def add(name: str, *shape: float) -> None:
        sizes = tuple(map(int, shape))
        if len(sizes) == 1:
            writer.add_tensor(f"{name}.weight", np.ones(sizes, np.float32))
            return
        values = rng.standard_normal(sizes, np.float32) * np.float32(0.02)
        kind = np.float32 if name.endswith("gate_inp") else np.float16
        writer.add_tensor(f"{name}.weight", values.astype(kind))

    add("token_embd", CONFIG["vocab_size"], hidden)
    add("output_norm", hidden)
    add("output", CONFIG["vocab_size"], hidden)
    for layer in range(int(CONFIG["num_hidden_layers"])):
        block = f"blk.{layer}"
        add(f"{block}.attn_norm", hidden)
        add(f"{block}.attn_q", queries, hidden)
        add(f"{block}.attn_k", keys, hidden)
        add(f"{block}.attn_v", keys, hidden)
        add(f"{block}.attn_output", hidden, queries)
        add(f"{block}.attn_q_norm", head)
        add(f"{block}.attn_k_norm", head)
        add(f"{block}.ffn_norm", hidden)
        add(f"{block}.ffn_gate_inp", EXPERTS, hidden)
        add(f"{block}.ffn_gate_exps", EXPERTS, WIDTH, hidden)
        add(f"{block}.ffn_up_exps", EXPERTS, WIDTH, hidden)
        add(f"{block}.ffn_down_exps", EXPERTS, hidden, WIDTH)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def logits(path: Path, out: Path, tokens: list[int]) -> None:
    import llama_cpp

    model = llama_cpp.Llama(str(path), n_ctx=len(tokens) + 8, logits_all=True, verbose=False)
    model.eval(tokens)
    np.savez(out, logits=np.array(model.scores[: len(tokens)]))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("verb", choices=["quantize", "mixture", "logits"])
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("kind", nargs="?", default="Q4_K_M")
    parser.add_argument("--tokens", type=int, nargs="+", default=[])
    arguments = parser.parse_args()
    if arguments.verb == "quantize":
        quantize(arguments.source, arguments.out, arguments.kind)
    elif arguments.verb == "mixture":
        mixture(arguments.source, arguments.out)
    else:
        logits(arguments.source, arguments.out, arguments.tokens)


if __name__ == "__main__":
    main()
