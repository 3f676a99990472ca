"""GGUF's metadata as the configuration that Hugging Face has for the model."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.checkpoints.gguf_names import (
    ARCHITECTURES,
    ROPE_FREQUENCIES,
    ROPE_LONG,
    ROPE_SHORT,
)
from satchel.errors import CheckpointError

# generation_config.json's field -> keys of GGUF; several end tokens become a list
SAMPLING_KEYS = {
    "temperature": "general.sampling.temp",
    "top_k": "general.sampling.top_k",
    "top_p": "general.sampling.top_p",
    "min_p": "general.sampling.min_p",
    "repetition_penalty": "general.sampling.penalty_repeat",
}
# How YaRN differs from what is usual: config.json's field -> the end of GGUF's key
_YARN_KEYS = {
    "attention_factor": "attn_factor",
    "beta_fast": "beta_fast",
    "beta_slow": "beta_slow",
}
END_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")


class GgufFacts:
    """What a GGUF file says about its model: metadata, tensor names and rotary factors."""

    def __init__(
        self,
        path: Path,
        metadata: Mapping[str, Any],
        shapes: Mapping[str, tuple[int, ...]],
        read: Callable[[str], NDArray[np.float32]],
    ) -> None:
        self.path = path
        self.metadata = metadata
        self.shapes = shapes
        self.read = read
        self.architecture = str(metadata.get("general.architecture"))

    def get(self, key: str, default: Any = None) -> Any:
        """A value under the architecture's prefix."""
        value = self.metadata.get(f"{self.architecture}.{key}", default)
        if isinstance(value, list) and value and all(item == value[0] for item in value):
            value = value[0]  # one value per layer, all the same
        return _without_dust(value)

    def need(self, key: str, kind: type = int) -> Any:
        value = self.get(key)
        if kind is float and isinstance(value, int):
            value = float(value)
        if isinstance(value, bool) or not isinstance(value, kind) or not value > 0:  # type: ignore[operator]
            problem = "is missing" if value is None else "is not a number above zero"
            if isinstance(value, list):
                problem = "differs between layers, which is not supported"
            raise CheckpointError(
                f"{self.path}: key {self.architecture}.{key} {problem}",
                "Use a GGUF file of a recent converter",
            )
        return value


def _without_dust(value: Any) -> Any:
    """A float of 32 bits as the decimal that was meant: 1e-05, not 9.999999747378752e-06."""
    return float(str(np.float32(value))) if isinstance(value, float) else value


def config_from_gguf(facts: GgufFacts) -> dict[str, Any]:
    """The config.json that belongs to a GGUF file."""
    heads, hidden = facts.need("attention.head_count"), facts.need("embedding_length")
    embedding = facts.shapes.get("token_embd.weight", ())
    if len(embedding) != 2 or embedding[1] != hidden:
        raise CheckpointError(
            f"{facts.path}: tensor token_embd.weight has the shape {list(embedding)}, which does "
            f"not fit {facts.architecture}.embedding_length {hidden}",
            "The file is damaged: fetch it again",
        )
    form = ARCHITECTURES[facts.architecture]
    rms = "" if form.layer_norm_eps else "rms_"
    config: dict[str, Any] = {
        "model_type": form.model_type,
        "hidden_size": hidden,
        "intermediate_size": facts.need("feed_forward_length"),
        "num_hidden_layers": facts.need("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": facts.get("attention.head_count_kv") or heads,
        "head_dim": facts.get("attention.key_length") or hidden // heads,
        "hidden_act": "silu",
        form.layer_norm_eps or "rms_norm_eps": facts.need(
            f"attention.layer_norm_{rms}epsilon", float
        ),
        "rope_theta": float(facts.get("rope.freq_base", 10000.0)),
        "rope_scaling": _rope_scaling(facts),
        "max_position_embeddings": facts.need("context_length"),
        "vocab_size": embedding[0],
        "tie_word_embeddings": "output.weight" not in facts.shapes,
        "attention_bias": "blk.0.attn_q.bias" in facts.shapes,
        "mlp_bias": "blk.0.ffn_up.bias" in facts.shapes,
    }
    for key in ("bos_token_id", "eos_token_id"):
        if (token := facts.metadata.get(f"tokenizer.ggml.{key}")) is not None:
            config[key] = token
    if facts.get("expert_count", 0):
        _experts(facts, config)
    if extend := _SPECIAL.get(facts.architecture):
        extend(facts, config)
    return config


def generation_from_gguf(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The generation_config.json that belongs to a GGUF file."""
    generation = {
        field: _without_dust(metadata[key])
        for field, key in SAMPLING_KEYS.items()
        if key in metadata
    }
    if (begin := metadata.get("tokenizer.ggml.bos_token_id")) is not None:
        generation["bos_token_id"] = begin
    ends = [metadata.get(f"tokenizer.ggml.{key}") for key in END_KEYS]
    unique = list(dict.fromkeys(end for end in ends if end is not None))
    if unique:
        generation["eos_token_id"] = unique if len(unique) > 1 else unique[0]
    return generation


def _rope_scaling(facts: GgufFacts) -> dict[str, Any] | None:
    if ROPE_FREQUENCIES in facts.shapes:
        return _llama3_scaling(facts)
    if ROPE_LONG in facts.shapes and ROPE_SHORT in facts.shapes:
        return {
            "rope_type": "longrope",
            "long_factor": [float(str(value)) for value in facts.read(ROPE_LONG)],
            "short_factor": [float(str(value)) for value in facts.read(ROPE_SHORT)],
        }
    kind = facts.get("rope.scaling.type", "none")
    if kind == "none":
        linear = facts.get("rope.scale_linear", 1.0)  # of older converters
        return {"rope_type": "linear", "factor": linear} if linear != 1.0 else None
    if kind not in ("linear", "yarn"):
        raise CheckpointError(
            f"{facts.path}: key {facts.architecture}.rope.scaling.type is {kind!r}, which is not "
            "supported without its factors",
            "Use a GGUF file of a recent converter",
        )
    scaling = {"rope_type": kind, "factor": facts.need("rope.scaling.factor", float)}
    if kind == "yarn":
        length = facts.need("rope.scaling.original_context_length")
        scaling["original_max_position_embeddings"] = length
        for name, key in _YARN_KEYS.items():
            if (value := facts.get(f"rope.scaling.yarn_{key}")) is not None:
                scaling[name] = value
    return scaling


def _llama3_scaling(facts: GgufFacts) -> dict[str, Any] | None:
    """Llama 3's scaling from the factor of every frequency, all that GGUF keeps of it."""
    factors = facts.read(ROPE_FREQUENCIES)
    factor, low, high, original = float(factors.max(initial=1.0)), 1.0, 4.0, 8192
    if factor == 1.0:
        return None
    theta = float(facts.get("rope.freq_base", 10000.0))
    turns = original / (2 * math.pi * theta ** (np.arange(factors.size) / factors.size))
    share = np.clip((turns - low) / (high - low), 0.0, 1.0)  # 1: a frequency that stays
    expected = 1 / ((1 - share) / factor + share)
    if not np.allclose(factors, expected, rtol=1e-3):
        raise CheckpointError(
            f"{facts.path}: tensor {ROPE_FREQUENCIES} does not follow Llama 3's scaling",
            "Use the Hugging Face form of this model",
        )
    return {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": low,
        "high_freq_factor": high,
        "original_max_position_embeddings": original,
    }


def _experts(facts: GgufFacts, config: dict[str, Any]) -> None:
    if "ffn_gate_inp" not in ARCHITECTURES[facts.architecture].names:
        with_experts = [
            name for name, form in ARCHITECTURES.items() if "ffn_gate_inp" in form.names
        ]
        raise CheckpointError(
            f"{facts.path} is a mixture of experts of architecture {facts.architecture!r}",
            f"Those that are read from GGUF are {', '.join(with_experts)}",
        )
    count = "num_experts" if facts.architecture == "olmoe" else "num_local_experts"
    config[count] = facts.need("expert_count")
    config["num_experts_per_tok"] = facts.need("expert_used_count")
    if facts.architecture == "llama":
        config["model_type"] = "mixtral"


def _qwen3moe(facts: GgufFacts, config: dict[str, Any]) -> None:
    _qwen(facts, config)
    config["moe_intermediate_size"] = facts.need("expert_feed_forward_length")
    config["norm_topk_prob"] = True  # not in the file: so in every published model


def _olmo(facts: GgufFacts, config: dict[str, Any]) -> None:
    config["clip_qkv"] = facts.get("attention.clamp_kqv")


def _olmo2(facts: GgufFacts, config: dict[str, Any]) -> None:
    if not facts.get("attention.sliding_window"):
        return
    config["model_type"] = "olmo3"  # which has no architecture of its own in GGUF
    _sliding_layers(facts, config, period=4, window=4096)
    if theta := facts.get("rope.freq_base_swa"):
        config["rope_parameters"] = {"sliding_attention": {"rope_theta": float(theta)}}


def _exaone4(facts: GgufFacts, config: dict[str, Any]) -> None:
    if facts.get("attention.sliding_window"):
        _sliding_layers(facts, config, period=4, window=4096)
    else:
        config["sliding_window"] = None


def _arcee(facts: GgufFacts, config: dict[str, Any]) -> None:
    config["hidden_act"] = "relu2"


def _nemotron(facts: GgufFacts, config: dict[str, Any]) -> None:
    _partly_rotated(facts, config)
    config["hidden_act"] = "relu2"


def _seed_oss(facts: GgufFacts, config: dict[str, Any]) -> None:
    config["attention_out_bias"] = "blk.0.attn_output.bias" in facts.shapes


def _cohere(facts: GgufFacts, config: dict[str, Any]) -> None:
    config["logit_scale"] = facts.need("logit_scale", float)


def _cohere2(facts: GgufFacts, config: dict[str, Any]) -> None:
    _cohere(facts, config)
    _sliding_layers(facts, config, period=4, window=4096)


def _granite(facts: GgufFacts, config: dict[str, Any]) -> None:
    config["attention_multiplier"] = facts.need("attention.scale", float)
    config["embedding_multiplier"] = facts.need("embedding_scale", float)
    config["residual_multiplier"] = facts.need("residual_scale", float)
    config["logits_scaling"] = facts.need("logit_scale", float)


def _smollm3(facts: GgufFacts, config: dict[str, Any]) -> None:
    # Not in the file: every fourth layer has no rotary embedding.
    layers = range(config["num_hidden_layers"])
    config["no_rope_layer_interval"] = 4
    config["no_rope_layers"] = [int((layer + 1) % 4 != 0) for layer in layers]
    config["use_sliding_window"] = False


def _qwen(facts: GgufFacts, config: dict[str, Any]) -> None:
    config["use_sliding_window"] = False


def _partly_rotated(facts: GgufFacts, config: dict[str, Any]) -> None:
    head_dim = config["head_dim"]
    config["partial_rotary_factor"] = facts.get("rope.dimension_count", head_dim) / head_dim


def _glm4(facts: GgufFacts, config: dict[str, Any]) -> None:
    _partly_rotated(facts, config)
    del config["mlp_bias"]  # there is none


def _phi2(facts: GgufFacts, config: dict[str, Any]) -> None:
    _partly_rotated(facts, config)
    config["hidden_act"] = "gelu_new"
    del config["attention_bias"], config["mlp_bias"]  # always there


def _stablelm(facts: GgufFacts, config: dict[str, Any]) -> None:
    _partly_rotated(facts, config)
    config["use_qkv_bias"] = config.pop("attention_bias")
    del config["mlp_bias"]


def _starcoder2(facts: GgufFacts, config: dict[str, Any]) -> None:
    config["hidden_act"] = "gelu_pytorch_tanh"
    config["use_bias"] = config.pop("attention_bias")
    del config["mlp_bias"]  # the same
    config["sliding_window"] = facts.get("attention.sliding_window") or None


def _phi3(facts: GgufFacts, config: dict[str, Any]) -> None:
    _partly_rotated(facts, config)
    config["sliding_window"] = facts.get("attention.sliding_window") or None
    config["original_max_position_embeddings"] = (
        facts.get("rope.scaling.original_context_length") or config["max_position_embeddings"]
    )


def _gemma(facts: GgufFacts, config: dict[str, Any]) -> None:
    config["hidden_act"] = config["hidden_activation"] = "gelu_pytorch_tanh"


def _gemma2(facts: GgufFacts, config: dict[str, Any]) -> None:
    _gemma(facts, config)
    _sliding_layers(facts, config, period=2, window=4096)
    config["attn_logit_softcapping"] = facts.get("attn_logit_softcapping", 50.0)
    config["final_logit_softcapping"] = facts.get("final_logit_softcapping", 30.0)
    config["query_pre_attn_scalar"] = _query_scalar(config, largest=46)


def _gemma3(facts: GgufFacts, config: dict[str, Any]) -> None:
    _gemma(facts, config)
    _sliding_layers(facts, config, period=6, window=config["max_position_embeddings"])
    config["rope_theta"] = float(facts.get("rope.freq_base", 1e6))
    config["rope_local_base_freq"] = float(facts.get("rope.freq_base_swa", 10000.0))
    config["attn_logit_softcapping"] = None
    config["final_logit_softcapping"] = facts.get("final_logit_softcapping")
    config["query_pre_attn_scalar"] = _query_scalar(config, largest=62)


def _sliding_layers(facts: GgufFacts, config: dict[str, Any], period: int, window: int) -> None:
    """Every ``period``-th layer sees all tokens, the others a window of them.

    Unless the file has another period, or a list that says of each layer whether it slides.
    """
    config["sliding_window"] = facts.get("attention.sliding_window") or window
    layers = range(config["num_hidden_layers"])
    slides = facts.get("attention.sliding_window_pattern", period)
    if isinstance(slides, bool):  # of all layers
        slides = [slides for _ in layers]
    elif isinstance(slides, int) and slides > 0:
        slides = [(layer + 1) % slides != 0 for layer in layers]
    if not isinstance(slides, list) or len(slides) != len(layers):
        raise CheckpointError(
            f"{facts.path}: key {facts.architecture}.attention.sliding_window_pattern is neither a "
            f"number of layers nor a list for all {len(layers)}",
            "Use a GGUF file of a recent converter",
        )
    config["layer_types"] = ["sliding_attention" if one else "full_attention" for one in slides]


def _query_scalar(config: dict[str, Any], largest: int) -> int:
    """What attention is scaled by: the head size, but in the 27B models (by their layers)."""
    if config["num_hidden_layers"] == largest:
        return int(config["hidden_size"]) // int(config["num_attention_heads"])
    return int(config["head_dim"])


_SPECIAL: dict[str, Callable[[GgufFacts, dict[str, Any]], None]] = {
    "granite": _granite,
    "granitemoe": _granite,
    "smollm3": _smollm3,
    "qwen2": _qwen,
    "qwen3": _qwen,
    "qwen3moe": _qwen3moe,
    "olmo": _olmo,
    "olmo2": _olmo2,
    "olmoe": _olmo,
    "exaone4": _exaone4,
    "arcee": _arcee,
    "nemotron": _nemotron,
    "seed_oss": _seed_oss,
    "command-r": _cohere,
    "cohere2": _cohere2,
    "glm4": _glm4,
    "phi2": _phi2,
    "phi3": _phi3,
    "stablelm": _stablelm,
    "starcoder2": _starcoder2,
    "gemma": _gemma,
    "gemma2": _gemma2,
    "gemma3": _gemma3,
}
