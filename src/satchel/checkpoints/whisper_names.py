"""openai-whisper's names and sizes, which ggml files share, in Hugging Face's terms."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from satchel.errors import CheckpointError

_PARTS = {
    "attn": "self_attn",
    "attn_ln": "self_attn_layer_norm",
    "cross_attn": "encoder_attn",
    "cross_attn_ln": "encoder_attn_layer_norm",
    "mlp.0": "fc1",
    "mlp.2": "fc2",
    "mlp_ln": "final_layer_norm",
}
_PROJECTIONS = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "out": "out_proj"}
_OTHERS = {
    "encoder.positional_embedding": "model.encoder.embed_positions.weight",
    "decoder.positional_embedding": "model.decoder.embed_positions.weight",
    "decoder.token_embedding.weight": "model.decoder.embed_tokens.weight",
    "encoder.ln_post": "model.encoder.layer_norm",
    "decoder.ln": "model.decoder.layer_norm",
}
_LAYER = re.compile(
    r"(encoder|decoder)\.blocks\.(\d+)\.(mlp\.\d|\w+)(?:\.(query|key|value|out))?\.(weight|bias)"
)
_SIZES = {
    "n_mels": "num_mel_bins",
    "n_audio_ctx": "max_source_positions",
    "n_audio_state": "d_model",
    "n_audio_head": "encoder_attention_heads",
    "n_audio_layer": "encoder_layers",
    "n_vocab": "vocab_size",
    "n_text_ctx": "max_target_positions",
    "n_text_state": "decoder_width",
    "n_text_head": "decoder_attention_heads",
    "n_text_layer": "decoder_layers",
}


def huggingface_name(name: str) -> str:
    """
    >>> huggingface_name("encoder.blocks.3.attn.query.weight")
    'model.encoder.layers.3.self_attn.q_proj.weight'
    """
    if name in _OTHERS:
        return _OTHERS[name]
    found = _LAYER.fullmatch(name)
    if found:
        tower, number, part, projection, kind = found.groups()
        inner = f".{_PROJECTIONS[projection]}" if projection else ""
        return f"model.{tower}.layers.{number}.{_PARTS.get(part, part)}{inner}.{kind}"
    module, _, kind = name.rpartition(".")
    return f"{_OTHERS[module]}.{kind}" if module in _OTHERS else f"model.{name}"


def whisper_config(sizes: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The fields of a config.json, from the sizes that the file has."""
    config: dict[str, Any] = {"model_type": "whisper"}
    for own, field in _SIZES.items():
        value = sizes.get(own)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise CheckpointError(
                f"{path}: the size {own} is {value!r}", "The file is damaged: fetch it again"
            )
        config[field] = value
    if config.pop("decoder_width") != config["d_model"]:
        raise CheckpointError(
            f"{path}: encoder and decoder have different widths", "It is no model of Whisper's"
        )
    return config
