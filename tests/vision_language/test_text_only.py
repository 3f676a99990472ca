"""The language models of checkpoints that see, against transformers, on texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import satchel
from models.family_check import BLOCK, CONTEXT, TOKENS, TOLERANCE, both_ways
from support.tiny_models import BASE, write_tokenizer

VISION = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1}
GEMMA3 = {"head_dim": 32, "sliding_window": 24, "num_hidden_layers": 7, "tie_word_embeddings": True}
ROWS: dict[str, dict[str, Any]] = {
    "gemma3": {
        "text_config": {**BASE, **GEMMA3, "model_type": "gemma3_text"},
        "vision_config": {**VISION, "num_attention_heads": 4, "image_size": 28, "patch_size": 14},
        "mm_tokens_per_image": 4,
        "image_token_index": 270,
        "boi_token_index": 268,
        "eoi_token_index": 269,
    },
    "mistral3": {
        "text_config": {**BASE, "head_dim": 32, "sliding_window": None, "model_type": "mistral"},
        "vision_config": {**VISION, "num_attention_heads": 4, "model_type": "pixtral"},
        "image_token_index": 270,
    },
}


def older_name(name: str) -> str:
    """As the first checkpoints of these models have it."""
    name = name.replace("model.language_model.", "language_model.model.")
    name = name.replace("model.vision_tower.", "vision_tower.")
    return name.replace("model.multi_modal_projector.", "multi_modal_projector.")


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("kind", ROWS)
def test_texts_are_answered_as_by_the_whole_model(tmp_path: Path, kind: str, older: bool) -> None:
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, **ROWS[kind])
    model = transformers.AutoModelForImageTextToText.from_config(config).float().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=1.5 * parameter[0].numel() ** -0.5)
        wanted = model(input_ids=torch.tensor(TOKENS[None].astype(np.int64))).logits[0].numpy()
    folder = tmp_path / "model"
    model.save_pretrained(folder)
    if older:
        from safetensors.torch import load_file, save_file

        path = folder / "model.safetensors"
        save_file({older_name(n): t for n, t in load_file(path).items()}, path)
    write_tokenizer(folder)
    with pytest.warns(UserWarning, match="it will not see images"):
        program = satchel.export(
            folder, tmp_path / "m.satchel", recipe="fp32", context=CONTEXT, prefill_ar_len=BLOCK
        )
    for found in both_ways(program).values():
        assert np.abs(found - wanted).max() < TOLERANCE * np.abs(wanted).max()


def test_what_the_configuration_leaves_out(tmp_path: Path) -> None:
    """Gemma 3 4B's says of its sizes only those that transformers' defaults do not have."""
    config = transformers.AutoConfig.for_model("gemma3", **ROWS["gemma3"])
    config.text_config.num_attention_heads, config.text_config.num_key_value_heads = 8, 4
    model = transformers.AutoModelForImageTextToText.from_config(config)
    model.save_pretrained(tmp_path / "model")
    write_tokenizer(tmp_path / "model")
    stored = json.loads((tmp_path / "model/config.json").read_text())
    for field in ("num_attention_heads", "num_key_value_heads", "vocab_size"):
        del stored["text_config"][field]
    (tmp_path / "model/config.json").write_text(json.dumps(stored))
    satchel.export(tmp_path / "model", tmp_path / "m.satchel", recipe="fp32")
    program = satchel.load(tmp_path / "m.satchel")
    assert program.method("kv_forward").run([1], [0])[0].shape == (1, 272)
