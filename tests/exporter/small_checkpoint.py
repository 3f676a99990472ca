"""A small llama checkpoint, made without torch, that a test may damage in one place."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from satchel.models import build_model
from support.arrays import normal
from support.tiny_models import write_tokenizer

CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 320,
    "hidden_size": 128,
    "intermediate_size": 192,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
Tensors = dict[str, np.ndarray]


def write_small(
    folder: Path,
    change: Callable[[Tensors], object] | None = None,
    *,
    weights_of: dict[str, Any] | None = None,
    tokens: int = 258,
    **fields: Any,
) -> Path:
    """``change`` edits the tensors, ``fields`` the config, ``weights_of`` what is stored."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {**CONFIG, **fields}
    graph = build_model({**CONFIG, **(weights_of or {})}).method("kv_forward", 1, 8)
    tensors: Tensors = {w.name: normal(*w.shape, seed=w.name, scale=0.1) for w in graph.weights()}
    if change:
        change(tensors)
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    write_tokenizer(folder, tokens)
    return folder
