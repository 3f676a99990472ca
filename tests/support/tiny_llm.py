"""A tiny language model checkpoint, written without torch: for tests of all that runs one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from satchel.models import build_model
from support.arrays import normal

CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 320,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "tie_word_embeddings": True,
    "rms_norm_eps": 1e-5,
}

TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
SPECIAL = ["<s>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]


def write_tokenizer(
    folder: Path, template: str | None = TEMPLATE, end: str | None = "<|end|>"
) -> None:
    """Every byte is a token, then the special ones; without an end answers go on for ever."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate([*alphabet, *SPECIAL])}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"bos_token": "<s>", "eos_token": end, "chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def write_tiny_llm(
    folder: Path, template: str | None = TEMPLATE, seed: int = 0, **changes: Any
) -> Path:
    """A Hugging Face folder with random weights."""
    config = CONFIG | changes
    folder.mkdir(parents=True, exist_ok=True)
    tensors: dict[str, Any] = {}
    for weight in build_model(config).method("kv_forward", 1, 16).weights():
        vector = len(weight.shape) == 1
        numbers = normal(*weight.shape, seed=(seed, weight.name), scale=0.05 if vector else 0.25)
        tensors[weight.name] = (numbers + 1 if vector else numbers).astype(np.float32)
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    write_tokenizer(folder, template)
    return folder
