"""Every architecture in its variations, as changes to a tiny config. A new one adds rows here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class ModelRow:
    model_type: str
    name: str
    config: dict[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return f"{self.model_type}-{self.name}"


# Wavelengths of 16 … 64 are blended: with heads of 16 there are two such frequencies, and the
# test goes past position 64.
LLAMA3_SCALING = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}

# The test goes past position 32, and its programs have a context between the two.
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "partial_rotary_factor": 0.75,
    "short_factor": [1.0, 1.1, 1.3, 1.7, 2.0, 2.5],
    "long_factor": [1.2, 1.9, 3.0, 4.5, 8.0, 20.0],
}
LONG, SHORT = {"original_max_position_embeddings": 32}, {"original_max_position_embeddings": 112}

# All three kinds of frequencies: kept, blended and divided.
YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 32,
    "beta_fast": 4.0,
}
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}

WINDOW = {"sliding_window": 24}
FULL, SLIDING = "full_attention", "sliding_attention"
LATER_LAYERS_SLIDE = {**WINDOW, "use_sliding_window": True, "max_window_layers": 1}
TWO_ROPES = {
    SLIDING: {"rope_type": "default", "rope_theta": 100.0},
    FULL: {"rope_type": "linear", "rope_theta": 50000.0, "factor": 8.0},
}
GEMMA = {"head_dim": 32, "query_pre_attn_scalar": 40, **WINDOW}
CAPS = {"attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0}
NO_CAPS = {"attn_logit_softcapping": None, "final_logit_softcapping": None}
EAGER = {"attn_implementation": "eager"}  # the only one that caps scores

MULTIPLIERS = {
    "embedding_multiplier": 3.0,
    "residual_multiplier": 0.22,
    "attention_multiplier": 0.4,
    "logits_scaling": 0.7,
}
WHOLE_HEADS = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0}
CODEGEN = {"intermediate_size": None, "num_key_value_heads": None, "rms_norm_eps": None}
LAYER_NORMS = {"rms_norm_eps": None}  # they have an eps of another name
COHERE = {"rms_norm_eps": None, "logit_scale": 0.7}
GPT_NEOX = {"num_key_value_heads": None, "rms_norm_eps": None}
TIED = {"tie_word_embeddings": True}
PAD = {"pad_token_id": 0}
# Sizes that whole tiles of rows divide, and as many choices as leave some experts out.
EXPERTS = {"num_experts": 6, "num_experts_per_tok": 3}
LOCAL_EXPERTS = {"num_local_experts": 6, "num_experts_per_tok": 3}
QWEN3_MOE = {**EXPERTS, "moe_intermediate_size": 32, "head_dim": 16}

ROWS = [
    ModelRow("llama", "grouped_query"),
    ModelRow("llama", "tied", {"tie_word_embeddings": True}),
    ModelRow("llama", "multi_head", {"num_key_value_heads": 4}),
    ModelRow("llama", "multi_query", {"num_key_value_heads": 1}),
    ModelRow("llama", "llama3_rope", {"rope_parameters": LLAMA3_SCALING}),
    ModelRow(
        "llama",
        "linear_rope",
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 500.0, "factor": 4.0}},
    ),
    ModelRow("llama", "yarn", {"rope_parameters": YARN}),
    ModelRow(
        "llama",
        "yarn_untruncated",
        {"rope_parameters": {**YARN, "truncate": False, "attention_factor": 0.9}},
    ),
    ModelRow(
        "llama",
        "yarn_scales",
        {"rope_parameters": {**YARN, "mscale": 0.7, "mscale_all_dim": 0.4}},
    ),
    ModelRow("llama", "dynamic_rope", {"rope_parameters": DYNAMIC}),
    ModelRow("llama", "relu", {"hidden_act": "relu"}),
    ModelRow("llama", "gelu", {"hidden_act": "gelu"}),
    ModelRow("llama", "attention_bias", {"attention_bias": True}),
    ModelRow("llama", "mlp_bias", {"mlp_bias": True, "attention_bias": True}),
    ModelRow("llama", "wide_heads", {"head_dim": 32}),
    ModelRow("llama", "odd_sizes", {"hidden_size": 60, "head_dim": 10, "intermediate_size": 77}),
    ModelRow("llama", "rms_eps", {"rms_norm_eps": 0.1}),
    ModelRow("codegen", "partly_rotated", {**CODEGEN, "rotary_dim": 8}),
    ModelRow(
        "codegen",
        "wholly_rotated",
        {**CODEGEN, "rotary_dim": 16, "n_inner": 96, "activation_function": "gelu"},
    ),
    ModelRow("gemma", "multi_query", {"head_dim": 32, "num_key_value_heads": 1, **TIED}),
    ModelRow(
        "gemma", "legacy_gelu", {"head_dim": 16, "attention_bias": True, "hidden_act": "gelu"}
    ),
    ModelRow("gemma2", "soft_caps", {**GEMMA, **CAPS, **EAGER, "num_hidden_layers": 4, **TIED}),
    ModelRow("gemma2", "no_caps", {**GEMMA, **NO_CAPS, "layer_types": [FULL, SLIDING]}),
    ModelRow("gemma3_text", "five_to_one", {**GEMMA, "num_hidden_layers": 7, **TIED}),
    ModelRow(
        "gemma3_text",
        "two_ropes",
        {
            **GEMMA,
            "layer_types": [SLIDING, FULL],
            "rope_parameters": TWO_ROPES,
            "final_logit_softcapping": 3.0,
            "attention_bias": True,
        },
    ),
    ModelRow("glm", "partly_rotated", {"head_dim": 32, **PAD}),
    ModelRow(
        "glm",
        "edge",
        {"head_dim": 16, "attention_bias": False, "rope_parameters": WHOLE_HEADS, **TIED, **PAD},
    ),
    ModelRow("granite", "multipliers", {**MULTIPLIERS, **TIED}),
    ModelRow("granite", "biases", {"attention_bias": True, "mlp_bias": True}),
    ModelRow("granitemoe", "multipliers", {**LOCAL_EXPERTS, **MULTIPLIERS, **TIED}),
    ModelRow("mixtral", "experts", LOCAL_EXPERTS),
    ModelRow("mixtral", "window", {**LOCAL_EXPERTS, **WINDOW}),
    ModelRow("olmoe", "experts", EXPERTS),
    ModelRow("olmoe", "clipped", {**EXPERTS, "norm_topk_prob": True, "clip_qkv": 0.7}),
    ModelRow("phi3", "long", {"rope_parameters": LONGROPE, **LONG, **TIED, **PAD}),
    ModelRow("phi3", "short", {"rope_parameters": LONGROPE, **SHORT, **PAD}),
    ModelRow("phi3", "window", {**WINDOW, **PAD}),
    ModelRow("qwen2", "tied", TIED),
    ModelRow("qwen2", "yarn", {"rope_parameters": YARN}),
    ModelRow("qwen2", "window", LATER_LAYERS_SLIDE),
    ModelRow("qwen3", "wide_heads", {"head_dim": 32, **TIED}),
    ModelRow("qwen3", "window", {"head_dim": 16, "attention_bias": True, **LATER_LAYERS_SLIDE}),
    ModelRow("qwen3_moe", "experts", {**QWEN3_MOE, "norm_topk_prob": True}),
    ModelRow(
        "qwen3_moe",
        "some_layers",
        {**QWEN3_MOE, "num_hidden_layers": 5, "decoder_sparse_step": 2, "mlp_only_layers": [1]},
    ),
    ModelRow("smollm3", "every_fourth", {"num_hidden_layers": 5, **TIED, **PAD}),
    ModelRow(
        "smollm3",
        "listed",
        {
            "num_hidden_layers": 3,
            "no_rope_layers": [0, 1, 0],
            "use_sliding_window": True,
            **WINDOW,
            "attention_bias": True,
            "mlp_bias": True,
            **PAD,
        },
    ),
    ModelRow(
        "stablelm", "biases", {**LAYER_NORMS, "use_qkv_bias": True, "rope_parameters": WHOLE_HEADS}
    ),
    ModelRow("ernie4_5", "tied", {"head_dim": 16, **TIED, **PAD}),
    ModelRow("ernie4_5", "biases", {"head_dim": 32, "use_bias": True, **PAD}),
    ModelRow("glm4", "partly_rotated", {"head_dim": 32, **PAD}),
    ModelRow("mistral", "window", WINDOW),
    ModelRow("mistral", "nemo", {"sliding_window": None, "head_dim": 32}),
    ModelRow("olmo2", "norms_behind", PAD),
    ModelRow("olmo2", "biases", {"attention_bias": True, "num_key_value_heads": 4, **TIED, **PAD}),
    ModelRow("phi", "partly_rotated", {**LAYER_NORMS, "layer_norm_eps": 0.1}),
    ModelRow("stablelm", "partly_rotated", {**LAYER_NORMS, "layer_norm_eps": 0.1}),
    ModelRow("starcoder2", "tied", {**LAYER_NORMS, "norm_epsilon": 0.1, **TIED}),
    ModelRow("starcoder2", "window", {**LAYER_NORMS, **WINDOW, "use_bias": False}),
    ModelRow(
        "phi",
        "grouped_query",
        {**LAYER_NORMS, "rope_parameters": WHOLE_HEADS, "hidden_act": "gelu"},
    ),
    ModelRow("arcee", "squared_relu", {"attention_bias": True, "mlp_bias": True}),
    ModelRow("nemotron", "partly_rotated", {**LAYER_NORMS, "norm_eps": 0.1}),
    ModelRow(
        "nemotron",
        "biases",
        {
            **LAYER_NORMS,
            "attention_bias": True,
            "mlp_bias": True,
            "rope_parameters": WHOLE_HEADS,
            **TIED,
        },
    ),
    ModelRow("seed_oss", "biases", {"head_dim": 32, "mlp_bias": True, **PAD}),
    ModelRow(
        "seed_oss",
        "output_bias",
        {"head_dim": 16, "attention_bias": False, "attention_out_bias": True, **TIED, **PAD},
    ),
    ModelRow("olmo", "norms_without_weights", {**LAYER_NORMS, **PAD}),
    ModelRow("olmo", "clipped", {**LAYER_NORMS, "clip_qkv": 0.7, "attention_bias": True, **PAD}),
    ModelRow("olmo3", "three_to_one", {**WINDOW, "num_hidden_layers": 5, **PAD}),
    ModelRow(
        "olmo3",
        "two_ropes",
        {
            **WINDOW,
            "layer_types": [SLIDING, FULL],
            "rope_parameters": {SLIDING: TWO_ROPES[SLIDING], FULL: YARN},
            "attention_bias": True,
            **PAD,
        },
    ),
    ModelRow("cohere", "side_by_side", {**COHERE, "layer_norm_eps": 0.1, **TIED, **PAD}),
    ModelRow("cohere", "biases", {**COHERE, "attention_bias": True}),
    ModelRow("cohere2", "three_to_one", {**COHERE, **WINDOW, "num_hidden_layers": 5, **TIED}),
    ModelRow(
        "cohere2",
        "listed",
        {**COHERE, **WINDOW, "layer_types": [FULL, SLIDING], "attention_bias": True},
    ),
    ModelRow("exaone4", "three_to_one", {**WINDOW, "num_hidden_layers": 5}),
    ModelRow("exaone4", "no_window", {"sliding_window": None, "layer_types": [FULL, FULL], **TIED}),
    ModelRow("gpt_neox", "side_by_side", {**GPT_NEOX, "layer_norm_eps": 0.1}),
    ModelRow(
        "gpt_neox",
        "in_turn",
        {**GPT_NEOX, "use_parallel_residual": False, "rope_parameters": WHOLE_HEADS, **TIED},
    ),
]
