"""The configuration of Meta's checkpoints in Hugging Face's terms, from params.json."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from satchel.checkpoints.jsonfile import positive_int
from satchel.checkpoints.stored import ReadableTensor
from satchel.errors import CheckpointError

EMBEDDING = "model.embed_tokens.weight"

# A converted Phi-4-mini, whose params.json says nothing of how its positions are scaled: up to so
# many tokens by the attention factor alone, since all its divisors for these are 1.
PHI4_MINI = {"dim": 3072, "n_layers": 32, "n_heads": 24, "n_kv_heads": 8, "vocab_size": 200064}
PHI4_CONTEXT, PHI4_EXTENDED, PHI4_ROTATED = 4096, 131072, 0.75

# params.json does not say the scaling factor of Llama 3's long context: 32 in Llama 3.2's text
# models, known by their hidden size (1B, 3B), and 8 in Llama 3.1.
LLAMA3_2_HIDDEN_SIZES = {2048, 3072}


def read_config(
    params: dict[str, Any],
    stored: Mapping[str, ReadableTensor],
    heads: int,
    kv_heads: int,
    where: Path,
) -> dict[str, Any]:
    """``params`` as config.json would say it; sizes that it leaves out are those of the weights."""
    hidden = positive_int(params, "dim", where)
    vocab_size = _shape(stored, EMBEDDING, where)[0]
    declared = params.get("vocab_size", -1)
    if declared not in (None, -1, vocab_size):
        raise CheckpointError(
            f"{where}: field vocab_size is {declared}, but the embedding has {vocab_size} rows",
            "The configuration does not belong to these weights",
        )
    scaled = bool(params.get("use_scaled_rope", False))
    theta = float(params.get("rope_theta", 10000.0))
    config: dict[str, Any] = {
        "model_type": _family(params, where),
        "hidden_size": hidden,
        # multiple_of and ffn_dim_multiplier only serve to compute this.
        "intermediate_size": _shape(stored, "model.layers.0.mlp.gate_proj.weight", where)[0],
        "num_hidden_layers": positive_int(params, "n_layers", where),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": positive_int({"head_dim": hidden // heads, **params}, "head_dim", where),
        "hidden_act": "silu",
        "rms_norm_eps": float(params.get("norm_eps", 1e-5)),
        "rope_theta": theta,
        "rope_scaling": None,
        "max_position_embeddings": _context(params, scaled, theta),
        "vocab_size": vocab_size,
        "attention_bias": bool(params.get("attention_qkv_bias", False)),
        "mlp_bias": False,
    }
    if scaled:
        factor = 32.0 if hidden in LLAMA3_2_HIDDEN_SIZES else 8.0
        config["rope_scaling"] = {
            "rope_type": "llama3",
            "factor": float(params.get("rope_scaling_factor") or factor),
            "low_freq_factor": 1.0,
            "high_freq_factor": float(params.get("rope_high_freq_factor") or 4.0),
            "original_max_position_embeddings": 8192,
        }
    return _phi4_mini(config) if config["model_type"] == "phi3" else config


def _phi4_mini(config: dict[str, Any]) -> dict[str, Any]:
    pairs = int(config["head_dim"] * PHI4_ROTATED) // 2
    ones = [1.0] * pairs
    return config | {
        "max_position_embeddings": PHI4_CONTEXT,
        "original_max_position_embeddings": PHI4_CONTEXT,
        "partial_rotary_factor": PHI4_ROTATED,
        "rope_scaling": {
            "type": "longrope",
            "factor": PHI4_EXTENDED / PHI4_CONTEXT,
            "short_factor": ones,
            "long_factor": ones,  # no program is that long
        },
    }


def _family(params: Mapping[str, Any], where: Path) -> str:
    """Llama, or what ExecuTorch's scripts have brought into the same form."""
    if params.get("partial_rotary_factor", 1.0) != 1.0:
        sizes = {name: params.get(name) for name in PHI4_MINI}
        if (sizes, params["partial_rotary_factor"]) == (PHI4_MINI, PHI4_ROTATED):
            return "phi3"
        raise CheckpointError(
            f"{where} is of a converted Phi, and says nothing of how its positions are scaled",
            "Give the Hugging Face folder that it was converted from: none needs converting here",
        )
    if params.get("use_qk_norm"):
        return "qwen3"
    return "qwen2" if params.get("attention_qkv_bias") else "llama"


def _context(params: dict[str, Any], scaled: bool, theta: float) -> int:
    """The context of the Llama generation, which params.json of Meta's leaves out."""
    if isinstance(length := params.get("max_seq_len"), int):
        return length
    if scaled:
        return 131072  # Llama 3.1 and later
    if theta == 1000000.0:
        return 32768  # Qwen2.5, Qwen3
    return 8192 if theta == 500000.0 else 4096  # Llama 3, Llama 2


def _shape(stored: Mapping[str, ReadableTensor], name: str, where: Path) -> tuple[int, ...]:
    tensor = stored.get(name)
    if tensor is None or len(tensor.shape) != 2:
        raise CheckpointError(
            f"{where.parent} has no weights of two dimensions under the name {name}",
            "Fetch the checkpoint again",
        )
    return tensor.shape
