"""LLaVA in miniature with random weights: transformers' model, and its folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from support.tiny_llm import write_tiny_llm

SIZE, PATCH = 28, 7
ROWS = (SIZE // PATCH) ** 2


def tiny_llava(folder: Path, seed: int = 0, **other: Any) -> tuple[Any, Path]:
    """A model, and its checkpoint with a tokenizer that knows ``<image>``."""
    import torch
    from transformers import (
        CLIPVisionConfig,
        LlamaConfig,
        LlavaConfig,
        LlavaForConditionalGeneration,
    )

    text = write_tiny_llm(folder / "text")
    document = json.loads((text / "tokenizer.json").read_text())
    known = max(
        [*document["model"]["vocab"].values(), *(t["id"] for t in document["added_tokens"])]
    )
    image = known + 1
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    document["added_tokens"].append({"id": image, "content": "<image>", "special": True, **flags})
    torch.manual_seed(seed)
    config = LlavaConfig(
        vision_config=CLIPVisionConfig(
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=3,
            num_attention_heads=4,
            image_size=SIZE,
            patch_size=PATCH,
            projection_dim=32,
        ),
        text_config=LlamaConfig(
            vocab_size=image + 8,
            hidden_size=64,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=512,
            bos_token_id=1,
            eos_token_id=2,
        ),
        image_token_index=image,
        image_seq_length=ROWS,
        **other,
    )
    model = LlavaForConditionalGeneration(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter) / max(parameter.shape) ** 0.25)
    place = folder / "llava"
    model.save_pretrained(place)
    (place / "tokenizer.json").write_text(json.dumps(document))
    if (text / "tokenizer_config.json").is_file():
        described = (text / "tokenizer_config.json").read_text()
        (place / "tokenizer_config.json").write_text(described)
    processor = {
        "size": {"shortest_edge": SIZE},
        "crop_size": {"height": SIZE, "width": SIZE},
        "image_processor_type": "CLIPImageProcessor",
        "resample": 3,
    }
    (place / "preprocessor_config.json").write_text(json.dumps(processor))
    return model, place
