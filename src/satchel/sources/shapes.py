"""Configurations of real models, for random checkpoints of their shapes."""

from __future__ import annotations

from typing import Any

_LLAMA3_ROPE = {
    "rope_type": "llama3",
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}

# 96 of 128 values of a head are rotated; the divisors have the ends of the real ones.
_PHI4_ROPE = {
    "type": "longrope",
    "short_factor": [1.0] * 48,
    "long_factor": [1.0 + 46.77 * i / 47 for i in range(48)],
}

# Peers choose their model class by this name.
_ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "phi3": "Phi3ForCausalLM",
}


def _config(
    model_type: str,
    layers: int,
    hidden: int,
    heads: tuple[int, int, int],
    ffn: int,
    vocab: int,
    eps: float,
    theta: float,
    context: int,
    **more: Any,
) -> dict[str, Any]:
    query, key_value, head_dim = heads
    return {
        "model_type": model_type,
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": query,
        "num_key_value_heads": key_value,
        "head_dim": head_dim,
        "intermediate_size": ffn,
        "vocab_size": vocab,
        "rms_norm_eps": eps,
        "rope_theta": theta,
        "max_position_embeddings": context,
        "tie_word_embeddings": True,
        "hidden_act": "silu",
        "architectures": [_ARCHITECTURES[model_type]],
        "torch_dtype": "bfloat16",
        "bos_token_id": 256,
        "eos_token_id": 257,
        **more,
    }


SHAPES: dict[str, dict[str, Any]] = {
    # Small enough to try an experiment with before it is run with the others.
    "tiny-llama": _config("llama", 2, 64, (4, 2, 16), 128, 320, 1e-5, 10000.0, 2048),
    "tiny-qwen3": _config("qwen3", 2, 64, (4, 2, 16), 128, 320, 1e-6, 10000.0, 2048),
    "smollm2-135m": _config("llama", 30, 576, (9, 3, 64), 1536, 49152, 1e-5, 100000.0, 8192),
    "llama3_2-1b": _config(
        "llama",
        16,
        2048,
        (32, 8, 64),
        8192,
        128256,
        1e-5,
        500000.0,
        131072,
        rope_scaling=_LLAMA3_ROPE,
    ),
    "llama3_2-3b": _config(
        "llama",
        28,
        3072,
        (24, 8, 128),
        8192,
        128256,
        1e-5,
        500000.0,
        131072,
        rope_scaling=_LLAMA3_ROPE,
    ),
    "qwen3-0_6b": _config("qwen3", 28, 1024, (16, 8, 128), 3072, 151936, 1e-6, 1000000.0, 40960),
    "qwen3-4b": _config("qwen3", 36, 2560, (32, 8, 128), 9728, 151936, 1e-6, 1000000.0, 40960),
    "phi4-mini": _config(
        "phi3",
        32,
        3072,
        (24, 8, 128),
        8192,
        200064,
        1e-5,
        10000.0,
        131072,
        original_max_position_embeddings=4096,
        partial_rotary_factor=0.75,
        rope_scaling=_PHI4_ROPE,
    ),
}
