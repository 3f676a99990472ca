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
        **more,
    }


SHAPES: dict[str, dict[str, Any]] = {
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
}
