"""The same weights in another format give the same program, but for tokenizer and metadata."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import satchel
from checkpoints.checkpoint_files import arrays, meta_params, meta_state, write_gguf, write_meta
from models.model_rows import (
    COHERE,
    EXPERTS,
    FULL,
    LAYER_NORMS,
    LLAMA3_SCALING,
    LOCAL_EXPERTS,
    LONGROPE,
    MULTIPLIERS,
    PAD,
    QWEN3_MOE,
    SLIDING,
    TIED,
    YARN,
)
from support.tiny_models import tiny_model, write_checkpoint, write_tokenizer

WINDOW = 24
PLAIN_ROPE = {"rope_type": "default", "rope_theta": 10000.0}
HALF = {"partial_rotary_factor": 0.5}
GGUF_EXPERTS = {"expert_count": 6, "expert_used_count": 3}
# GGUF's architecture (and a remark) -> transformers' model type, its configuration, the same in
# GGUF's metadata.
ROWS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "llama": ("llama", {"head_dim": 16}, {}),
    "qwen2": ("qwen2", {"head_dim": 16, **TIED}, {}),
    "qwen3": ("qwen3", {"head_dim": 32, **TIED}, {}),
    "gemma": ("gemma", {"head_dim": 32, **TIED}, {}),
    "gemma2": (
        "gemma2",
        {
            "head_dim": 32,
            "query_pre_attn_scalar": 32,
            "sliding_window": WINDOW,
            "attn_logit_softcapping": 40.0,
            "final_logit_softcapping": 20.0,
            **TIED,
        },
        {
            "attention.sliding_window": WINDOW,
            "attn_logit_softcapping": 40.0,
            "final_logit_softcapping": 20.0,
        },
    ),
    "gemma3": (
        "gemma3_text",
        {
            "head_dim": 32,
            "query_pre_attn_scalar": 32,
            "sliding_window": WINDOW,
            "num_hidden_layers": 7,
            "rope_parameters": {
                SLIDING: {"rope_type": "default", "rope_theta": 10000.0},
                FULL: {"rope_type": "default", "rope_theta": 10000.0},
            },
            **TIED,
        },
        {"attention.sliding_window": WINDOW},
    ),
    "granite": (
        "granite",
        {"head_dim": 16, **MULTIPLIERS, **TIED},
        {
            "attention.scale": MULTIPLIERS["attention_multiplier"],
            "embedding_scale": MULTIPLIERS["embedding_multiplier"],
            "residual_scale": MULTIPLIERS["residual_multiplier"],
            "logit_scale": MULTIPLIERS["logits_scaling"],
        },
    ),
    "granitemoe": (
        "granitemoe",
        {**LOCAL_EXPERTS, **MULTIPLIERS, **TIED},
        {
            "attention.scale": MULTIPLIERS["attention_multiplier"],
            "embedding_scale": MULTIPLIERS["embedding_multiplier"],
            "residual_scale": MULTIPLIERS["residual_multiplier"],
            "logit_scale": MULTIPLIERS["logits_scaling"],
            **GGUF_EXPERTS,
        },
    ),
    "llama of experts": (
        "mixtral",
        {**LOCAL_EXPERTS, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
        GGUF_EXPERTS,
    ),
    "olmoe": (
        "olmoe",
        {**EXPERTS, "clip_qkv": 0.75},
        {"attention.clamp_kqv": 0.75, **GGUF_EXPERTS},
    ),
    "olmo": (
        "olmo",
        {**LAYER_NORMS, "clip_qkv": 0.75, **PAD},
        {"attention.clamp_kqv": 0.75},
    ),
    "olmo2": ("olmo2", PAD, {}),
    "olmo2 that slides": (
        "olmo3",
        {
            "sliding_window": WINDOW,
            "num_hidden_layers": 4,
            "layer_types": [SLIDING, FULL, SLIDING, SLIDING],
            "rope_parameters": {SLIDING: PLAIN_ROPE, FULL: {**YARN, "attention_factor": 1.5}},
            **PAD,
        },
        {
            "attention.sliding_window": WINDOW,
            "attention.sliding_window_pattern": [True, False, True, True],
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 4.0,
            "rope.scaling.original_context_length": 32,
            "rope.scaling.yarn_attn_factor": 1.5,
            "rope.scaling.yarn_beta_fast": 4.0,
        },
    ),
    "exaone4": ("exaone4", {"sliding_window": None, "layer_types": [FULL, FULL]}, {}),
    "exaone4 that slides": (
        "exaone4",
        {"sliding_window": WINDOW, "num_hidden_layers": 5, **TIED},
        {"attention.sliding_window": WINDOW, "attention.sliding_window_pattern": 4},
    ),
    "arcee": ("arcee", {"head_dim": 16}, {}),
    "nemotron": (
        "nemotron",
        {"head_dim": 16, **LAYER_NORMS, "rope_parameters": {**PLAIN_ROPE, **HALF}},
        {"rope.dimension_count": 8},
    ),
    "seed_oss": ("seed_oss", {"head_dim": 16, **PAD}, {}),
    "command-r": (
        "cohere",
        {**COHERE, "rope_parameters": PLAIN_ROPE, **TIED, **PAD},
        {"logit_scale": 0.7, "rope.scaling.type": "none"},
    ),
    "cohere2": (
        "cohere2",
        {**COHERE, "sliding_window": WINDOW, "num_hidden_layers": 5, **TIED, **PAD},
        {"logit_scale": 0.7, "attention.sliding_window": WINDOW},
    ),
    "glm4": ("glm4", {"head_dim": 16, **PAD}, {"rope.dimension_count": 8}),
    "phi2": ("phi", {"head_dim": 16, **LAYER_NORMS}, {"rope.dimension_count": 8}),
    "stablelm": (
        "stablelm",
        {"head_dim": 16, "use_qkv_bias": True, **LAYER_NORMS},
        {"rope.dimension_count": 4},
    ),
    "starcoder2": ("starcoder2", {"head_dim": 16, **LAYER_NORMS, **TIED}, {}),
    "qwen3moe": (
        "qwen3_moe",
        {**QWEN3_MOE, "norm_topk_prob": True},
        {"expert_feed_forward_length": 32, **GGUF_EXPERTS},
    ),
    "phi3": (
        "phi3",
        {
            "head_dim": 16,
            "rope_parameters": LONGROPE,
            "original_max_position_embeddings": 32,
            **PAD,
        },
        {"rope.dimension_count": 12, "rope.scaling.original_context_length": 32},
    ),
    "smollm3": (
        "smollm3",
        {
            "head_dim": 16,
            "num_hidden_layers": 5,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
            **TIED,
            **PAD,
        },
        {},
    ),
}


def exact_model(model_type: str, config: dict[str, Any]) -> Any:
    """A model whose matrices are whole in F16, and whose norms stay so when 1 is added."""
    model = tiny_model(model_type, **config)
    with torch.no_grad():
        for parameter in model.parameters():
            rounded = (
                parameter.half().float() if parameter.dim() > 1 else parameter.mul(256).round()
            )
            parameter.copy_(rounded if parameter.dim() > 1 else rounded / 256)
    return model


def tokenizer_metadata() -> dict[str, Any]:
    from tokenizers import pre_tokenizers

    tokens = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "<s>", "</s>", "ab"]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [1] * 256 + [3] * 2 + [1],
        "tokenizer.ggml.merges": ["a b"],
        "tokenizer.ggml.bos_token_id": 256,
        "tokenizer.ggml.eos_token_id": 257,
    }


def longrope_tensors(config: dict[str, Any]) -> dict[str, Any]:
    factors = config.get("rope_parameters", {})
    return {
        f"rope_factors_{length}.weight": np.array(factors[f"{length}_factor"], np.float32)
        for length in ("long", "short")
        if f"{length}_factor" in factors
    }


def assert_same_program(one: Path, other: Path, folder: Path) -> None:
    """By each section's checksum; the one of weights covers names, encodings and bytes.

    "text" is the tokenizer once more, for machines without Python.
    """
    for recipe in ("fp16", "8da4w"):
        programs = [
            satchel.load(satchel.export(path, folder / f"{n}-{recipe}.satchel", recipe=recipe))
            for n, path in enumerate((one, other))
        ]
        mine, theirs = (
            {
                s["name"]: s["digest"]
                for s in p.sections
                if s["name"] not in ("metadata", "tokenizer", "text")
            }
            for p in programs
        )
        assert len(mine) >= 2 and mine == theirs
        names = [[(w["name"], w["digest"]) for w in p.weights] for p in programs]
        assert names[0] == names[1]


@pytest.mark.parametrize("row", ROWS)
def test_gguf_gives_the_same_program_as_safetensors(tmp_path: Path, row: str) -> None:
    architecture = row.split(maxsplit=1)[0]
    model_type, config, metadata = ROWS[row]
    model = exact_model(model_type, {"head_dim": 16, **config})
    folder = write_checkpoint(tmp_path / "folder", model)
    path = write_gguf(
        tmp_path / "model.gguf",
        model,
        architecture,
        kind="F16",
        metadata={"rope.freq_base": 10000.0, **metadata, **tokenizer_metadata()},
        extra=longrope_tensors(config),
    )
    assert_same_program(folder, path, tmp_path)


@pytest.mark.parametrize("tied", [False, True])
def test_meta_gives_the_same_program_as_safetensors(tmp_path: Path, tied: bool) -> None:
    scaling = {**LLAMA3_SCALING, "original_max_position_embeddings": 8192, "factor": 8.0}
    config = {"head_dim": 16, "rope_parameters": scaling, "tie_word_embeddings": tied}
    model = exact_model("llama", config)
    folder = write_checkpoint(tmp_path / "folder", model)
    params = {**meta_params(model.config), "use_scaled_rope": True, "max_seq_len": 128}
    state = meta_state(arrays(model), model.config)
    meta = write_meta(tmp_path / "meta", state, params)
    write_tokenizer(meta)
    assert_same_program(folder, meta, tmp_path)
