"""Configurations as they are published: what is as usual was left out of them for years."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers

import satchel
from satchel.errors import ConfigError
from satchel.models import build_model
from satchel.models.base import Decoder
from satchel.vision_language import text_config as of_text
from satchel.vision_language.encoder import clip, siglip
from satchel.vision_language.idefics3 import USUAL, Idefics3Tower
from satchel.vision_language.llava import LlavaTower
from satchel.vision_language.text_config import text_config
from support.tiny_smolvlm import tiny_smolvlm

CLIP_LARGE = {
    "hidden_size": 1024,
    "image_size": 336,
    "intermediate_size": 4096,
    "model_type": "clip_vision_model",
    "num_attention_heads": 16,
    "num_hidden_layers": 24,
    "patch_size": 14,
    "projection_dim": 768,
    "vocab_size": 32000,
}
LLAVA_7B = {
    "model_type": "llava",
    "image_token_index": 32000,
    "projector_hidden_act": "gelu",
    "text_config": {
        "_name_or_path": "lmsys/vicuna-7b-v1.5",
        "architectures": ["LlamaForCausalLM"],
        "max_position_embeddings": 4096,
        "model_type": "llama",
        "rms_norm_eps": 1e-05,
        "torch_dtype": "float16",
        "vocab_size": 32064,
    },
    "vision_config": CLIP_LARGE,
    "vision_feature_layer": -2,
    "vision_feature_select_strategy": "default",
}
NEXT_7B = {
    **LLAVA_7B,
    "model_type": "llava_next",
    "image_grid_pinpoints": [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]],
    "text_config": {
        "max_position_embeddings": 32768,
        "model_type": "mistral",
        "rms_norm_eps": 1e-05,
        "rope_theta": 1000000.0,
        "sliding_window": None,
        "vocab_size": 32064,
    },
}
ONEVISION = {
    "model_type": "llava_onevision",
    "image_grid_pinpoints": [[384, 768], [768, 384]],
    "image_token_index": 151646,
    "text_config": {"hidden_size": 896, "num_attention_heads": 14, "num_key_value_heads": 2},
    "vision_config": {"hidden_size": 1152, "image_size": 384, "num_attention_heads": 16},
}
# What the decoders of SmolVLM have of training.
LEFT_OVER: dict[str, Any] = {
    "_flash_attn_2_enabled": True,
    "is_llama_config": True,
    "neftune_noise_alpha": 0.0,
    "perceiver_config": {"resampler_depth": 6, "model_type": "vllama3"},
    "pixel_shuffle_factor": 4,
    "qk_layer_norms": False,
    "use_resampler": False,
}
IDEFICS3 = {
    "model_type": "idefics3",
    "image_token_id": 128257,
    "text_config": {"intermediate_size": 14336, "num_key_value_heads": 8, "vocab_size": 128259},
    "vision_config": {"image_size": 364, "patch_size": 14, "intermediate_size": 4304},
}


def described(model: Decoder) -> str:
    """All that was read of a configuration; arrays are told apart by their representation."""
    with np.printoptions(threshold=100_000):
        return str(sorted(vars(model).items()))


@pytest.mark.parametrize("family", of_text._USUAL)
def test_what_is_left_out_is_as_transformers_has_it(family: str) -> None:
    whole = transformers.AutoConfig.for_model(family).to_dict()
    ours = build_model(text_config({"text_config": {"model_type": family}}))
    wanted = build_model({**whole, "tie_word_embeddings": False})
    assert described(ours) == described(wanted)


def test_towers_have_their_own_classes_sizes() -> None:
    for kind, read, usual in (
        ("clip_vision_model", clip, {}),
        ("siglip_vision_model", siglip, {}),
        ("idefics3_vision", siglip, USUAL),
        ("smolvlm_vision", siglip, USUAL),
    ):
        whole = transformers.AutoConfig.for_model(kind).to_dict()
        assert read({}, "tower", **usual) == read(whole, "tower")  # type: ignore[operator]


@pytest.mark.parametrize("published", [LLAVA_7B, NEXT_7B, ONEVISION, IDEFICS3])
def test_whole_models_are_read_as_transformers_reads_them(published: dict[str, Any]) -> None:
    theirs = transformers.AutoConfig.for_model(**json.loads(json.dumps(published)))
    tower = Idefics3Tower if published["model_type"] == "idefics3" else LlavaTower
    seen, wanted = (tower(config, {}) for config in (published, theirs.to_dict()))
    assert (seen.encoder, seen.out, seen.rows) == (wanted.encoder, wanted.out, wanted.rows)
    whole = {**theirs.text_config.to_dict(), "tie_word_embeddings": False}
    assert described(build_model(text_config(published))) == described(build_model(whole))


def test_what_training_left_in_smolvlm_is_not_asked_for(tmp_path: Path) -> None:
    _, checkpoint = tiny_smolvlm(tmp_path)
    place = checkpoint / "config.json"
    config = json.loads(place.read_text())
    config["text_config"] |= LEFT_OVER
    place.write_text(json.dumps(config))
    satchel.export(checkpoint, tmp_path / "m.satchel", recipe="fp32", context=256)
    config["text_config"]["use_resampler"] = True
    place.write_text(json.dumps(config))
    with pytest.raises(ConfigError, match="'use_resampler' is True, and only False"):
        satchel.export(checkpoint, tmp_path / "other.satchel")
