"""The configurations of the models that have a name, as far as they say what is computed."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

Config = dict[str, Any]


def _sizes(
    model_type: str,
    layers: int,
    hidden: int,
    heads: int,
    kv: int,
    ffn: int,
    vocab: int,
    context: int,
) -> Config:
    return {
        "model_type": model_type,
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "intermediate_size": ffn,
        "vocab_size": vocab,
        "max_position_embeddings": context,
        "tie_word_embeddings": True,
    }


def _llama(
    layers: int, hidden: int, heads: int, kv: int, ffn: int, vocab: int, context: int, theta: float
) -> Config:
    sizes = _sizes("llama", layers, hidden, heads, kv, ffn, vocab, context)
    return sizes | {"rms_norm_eps": 1e-5, "rope_theta": theta}


LLAMA3_2 = {
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
}
QWEN = {"rms_norm_eps": 1e-6, "rope_theta": 1e6, "use_sliding_window": False}
GEMMA3 = {
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "rope_theta": 1e6,
    "rope_local_base_freq": 10000.0,
    "sliding_window": 512,
    "sliding_window_pattern": 6,
    "query_pre_attn_scalar": 256,
}
UNTIED = {"tie_word_embeddings": False}
PHI4_LONG = [1.0] * 31 + [32.0] * 17  # the values do not matter here, their number does

REAL_CONFIGS: dict[str, Config] = {
    "stories260k": _llama(5, 64, 8, 4, 172, 512, 512, 1e4),
    "stories15m": _llama(6, 288, 6, 6, 768, 32000, 256, 1e4),
    "stories110m": _llama(12, 768, 12, 12, 2048, 32000, 1024, 1e4),
    "smollm2-135m": _llama(30, 576, 9, 3, 1536, 49152, 8192, 1e5),
    "smollm2-360m": _llama(32, 960, 15, 5, 2560, 49152, 8192, 1e5),
    "llama3_2-1b": _llama(16, 2048, 32, 8, 8192, 128256, 131072, 5e5) | LLAMA3_2,
    "llama3_2-3b": _llama(28, 3072, 24, 8, 8192, 128256, 131072, 5e5) | LLAMA3_2,
    "codegen2-1b": {
        "model_type": "codegen",
        "n_layer": 16,
        "n_embd": 2048,
        "n_head": 16,
        "head_dim": 128,
        "n_inner": None,
        "n_positions": 2048,
        "n_ctx": 2048,
        "rotary_dim": 64,
        "vocab_size": 51200,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
        "scale_attn_weights": True,
        "summary_type": "cls_index",
        "tie_word_embeddings": False,
    },
    "gemma-2b": _sizes("gemma", 18, 2048, 8, 1, 16384, 256000, 8192)
    | {"head_dim": 256, "hidden_act": "gelu", "hidden_activation": None},
    "gemma2-2b": _sizes("gemma2", 26, 2304, 8, 4, 9216, 256000, 8192)
    | {"head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "sliding_window": 4096},
    "gemma3-270m": _sizes("gemma3_text", 18, 640, 4, 1, 2048, 262144, 32768) | GEMMA3,
    "gemma3-1b": _sizes("gemma3_text", 26, 1152, 4, 1, 6912, 262144, 32768) | GEMMA3,
    "glm-edge-1_5b": _sizes("glm", 28, 2048, 16, 4, 6144, 59264, 8192)
    | {"head_dim": 128, "attention_bias": False, "partial_rotary_factor": 1.0, "pad_token_id": 0},
    "granite3_3-2b": _sizes("granite", 40, 2048, 32, 8, 8192, 49159, 131072)
    | {
        "rope_theta": 1e7,
        "embedding_multiplier": 12.0,
        "residual_multiplier": 0.22,
        "attention_multiplier": 0.015625,
        "logits_scaling": 8.0,
    },
    "granite3_1-1b-a400m": _sizes("granitemoe", 24, 1024, 16, 8, 512, 49155, 131072)
    | {
        "rope_theta": 1.5e6,
        "embedding_multiplier": 12.0,
        "residual_multiplier": 0.22,
        "attention_multiplier": 0.015625,
        "logits_scaling": 6.0,
        "num_local_experts": 32,
        "num_experts_per_tok": 8,
    },
    "mixtral-8x7b": _sizes("mixtral", 32, 4096, 32, 8, 14336, 32000, 32768)
    | UNTIED
    | {"rope_theta": 1e6, "num_local_experts": 8, "num_experts_per_tok": 2},
    "olmoe-1b-7b": _sizes("olmoe", 16, 2048, 16, 16, 1024, 50304, 4096)
    | UNTIED
    | {"num_experts": 64, "num_experts_per_tok": 8, "norm_topk_prob": False, "clip_qkv": None},
    "phi4-mini": _sizes("phi3", 32, 3072, 24, 8, 8192, 200064, 131072)
    | {
        "partial_rotary_factor": 0.75,
        "original_max_position_embeddings": 4096,
        "rope_scaling": {
            "type": "longrope",
            "long_factor": PHI4_LONG,
            "short_factor": [1.0] * 48,
        },
        "sliding_window": 262144,
    },
    "qwen2_5-0_5b": _sizes("qwen2", 24, 896, 14, 2, 4864, 151936, 32768) | QWEN,
    "qwen2_5-1_5b": _sizes("qwen2", 28, 1536, 12, 2, 8960, 151936, 32768) | QWEN,
    "qwen3-0_6b": _sizes("qwen3", 28, 1024, 16, 8, 3072, 151936, 40960) | QWEN | {"head_dim": 128},
    "qwen3-1_7b": _sizes("qwen3", 28, 2048, 16, 8, 6144, 151936, 40960) | QWEN | {"head_dim": 128},
    "qwen3-4b": _sizes("qwen3", 36, 2560, 32, 8, 9728, 151936, 40960) | QWEN | {"head_dim": 128},
    "qwen3-30b-a3b": _sizes("qwen3_moe", 48, 2048, 32, 4, 6144, 151936, 40960)
    | QWEN
    | UNTIED
    | {
        "head_dim": 128,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 768,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    },
    "smollm3-3b": _sizes("smollm3", 36, 2048, 16, 4, 11008, 128256, 65536)
    | {
        "rope_theta": 5e6,
        "no_rope_layer_interval": 4,
        "max_window_layers": 28,
        "pad_token_id": 128004,
    },
}


def real_config(name: str) -> Config:
    """The configuration of a model in the catalogue; base and instruct models share one."""
    return deepcopy(REAL_CONFIGS[name.removesuffix("-instruct")])  # transformers changes it
