"""GGUF's tensor names as Hugging Face's, per architecture, as data."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

TOP_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
QK_NORMS = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
FOUR_NORMS = {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
EXPERTS = {
    "ffn_gate_inp": "mlp.gate",
    "ffn_gate_up_exps": "mlp.experts.gate_up_proj",
    "ffn_gate_exps": "mlp.experts.gate_proj",
    "ffn_up_exps": "mlp.experts.up_proj",
    "ffn_down_exps": "mlp.experts.down_proj",
}
NORMS_BEHIND = {
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
# In the file, but following from the configuration (or read into it: see gguf_config).
ROPE_FREQUENCIES = "rope_freqs.weight"
ROPE_LONG, ROPE_SHORT = "rope_factors_long.weight", "rope_factors_short.weight"
DERIVED = {ROPE_FREQUENCIES, ROPE_LONG, ROPE_SHORT}
_LAYER = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")
_TOP = re.compile(r"(\w+)\.(weight|bias)")


@dataclass(frozen=True)
class GgufArchitecture:
    """How GGUF stores an architecture, where it differs from Hugging Face."""

    model_type: str
    names: dict[str, str] = field(default_factory=dict)  # on top of LAYER_NAMES and TOP_NAMES
    interleaved: bool = False  # rotary rows of q and k, weights and biases
    norm_offset: bool = False  # norms are stored as 1 + w
    layer_norm_eps: str = ""  # Hugging Face's field, of those that have LayerNorms


ARCHITECTURES = {
    "llama": GgufArchitecture("llama", EXPERTS, interleaved=True),  # Mixtral too
    "granite": GgufArchitecture("granite", interleaved=True),
    "granitemoe": GgufArchitecture("granitemoe", EXPERTS, interleaved=True),
    "smollm3": GgufArchitecture("smollm3", interleaved=True),
    "qwen2": GgufArchitecture("qwen2"),
    "qwen3": GgufArchitecture("qwen3", QK_NORMS),
    "qwen3moe": GgufArchitecture("qwen3_moe", QK_NORMS | EXPERTS),
    "olmo": GgufArchitecture("olmo", interleaved=True, layer_norm_eps="rms_norm_eps"),
    "olmo2": GgufArchitecture("olmo2", QK_NORMS | NORMS_BEHIND),  # OLMo 3 too
    "exaone4": GgufArchitecture("exaone4", QK_NORMS | NORMS_BEHIND),
    "arcee": GgufArchitecture("arcee", interleaved=True),
    "nemotron": GgufArchitecture("nemotron", norm_offset=True, layer_norm_eps="norm_eps"),
    "seed_oss": GgufArchitecture("seed_oss", {"post_attention_norm": "post_attention_layernorm"}),
    # Their pairs lie side by side in both.
    "command-r": GgufArchitecture("cohere", layer_norm_eps="layer_norm_eps"),
    "cohere2": GgufArchitecture("cohere2", layer_norm_eps="layer_norm_eps"),
    "glm4": GgufArchitecture(
        "glm4",
        {
            "ffn_up": "mlp.gate_up_proj",
            "post_attention_norm": "post_self_attn_layernorm",
            "post_ffw_norm": "post_mlp_layernorm",
        },
    ),
    "phi2": GgufArchitecture(
        "phi",
        {
            "attn_output": "self_attn.dense",
            "ffn_up": "mlp.fc1",
            "ffn_down": "mlp.fc2",
            "output_norm": "model.final_layernorm",
        },
        layer_norm_eps="layer_norm_eps",
    ),
    "stablelm": GgufArchitecture("stablelm", layer_norm_eps="layer_norm_eps"),
    "starcoder2": GgufArchitecture(
        "starcoder2",
        {"ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"},
        layer_norm_eps="norm_epsilon",
    ),
    "olmoe": GgufArchitecture("olmoe", QK_NORMS | EXPERTS),
    "phi3": GgufArchitecture(
        "phi3", {"attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"}
    ),
    "gemma": GgufArchitecture("gemma", norm_offset=True),
    "gemma2": GgufArchitecture("gemma2", FOUR_NORMS, norm_offset=True),
    "gemma3": GgufArchitecture("gemma3_text", QK_NORMS | FOUR_NORMS, norm_offset=True),
}


def huggingface_name(name: str, architecture: GgufArchitecture) -> str | None:
    """The Hugging Face name of a GGUF tensor; None if the architecture has no such tensor."""
    if match := _LAYER.fullmatch(name):
        layer, part, kind = match.groups()
        found = architecture.names.get(part) or LAYER_NAMES.get(part)
        return f"model.layers.{int(layer)}.{found}.{kind}" if found else None
    if match := _TOP.fullmatch(name):
        found = architecture.names.get(match[1]) or TOP_NAMES.get(match[1])
        return f"{found}.{match[2]}" if found else None
    return None
