"""LLaVA in miniature with random weights: transformers' model, and its folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from support.tiny_llm import write_tiny_llm

SIZE, PATCH = 28, 7
ROWS = (SIZE // PATCH) ** 2


# Grids of tiles, height and width.
GRIDS = [[28, 56], [56, 28], [56, 56], [84, 28], [28, 84], [84, 84]]


def _config(family: str, image: int, **other: Any) -> tuple[Any, Any]:
    """transformers' model and its configuration; NeXT has CLIP and Llama, OneVision its own."""
    import transformers as t

    vision = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "image_size": SIZE,
        "patch_size": PATCH,
    }
    text = {
        "vocab_size": image + 8,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    if family == "llava":
        sees = t.CLIPVisionConfig(**vision, projection_dim=32)
        options = {"image_seq_length": ROWS, "text_config": t.LlamaConfig(**text)}
        config = t.LlavaConfig(vision_config=sees, image_token_index=image, **options, **other)
        return t.LlavaForConditionalGeneration, config
    if family == "llava_next":
        sees = t.CLIPVisionConfig(**vision, projection_dim=32)
        options = {"image_grid_pinpoints": GRIDS, "text_config": t.LlamaConfig(**text)}
        config = t.LlavaNextConfig(vision_config=sees, image_token_index=image, **options, **other)
        return t.LlavaNextForConditionalGeneration, config
    sees = t.SiglipVisionConfig(**vision, vision_use_head=False)
    options = {"image_grid_pinpoints": GRIDS, "text_config": t.Qwen2Config(**text)}
    options["vision_aspect_ratio"] = "anyres_max_4"
    config = t.LlavaOnevisionConfig(vision_config=sees, image_token_index=image, **options, **other)
    return t.LlavaOnevisionForConditionalGeneration, config


def tiny_llava(
    folder: Path, seed: int = 0, family: str = "llava", **other: Any
) -> tuple[Any, Path]:
    """A model, and its checkpoint with a tokenizer that knows ``<image>``."""
    import torch

    text = write_tiny_llm(folder / "text")
    document = json.loads((text / "tokenizer.json").read_text())
    known = max(
        [*document["model"]["vocab"].values(), *(t["id"] for t in document["added_tokens"])]
    )
    image = known + 1
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    document["added_tokens"].append({"id": image, "content": "<image>", "special": True, **flags})
    torch.manual_seed(seed)
    kind, config = _config(family, image, **other)
    model = kind(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter) / max(parameter.shape) ** 0.25)
    place = folder / family
    model.save_pretrained(place)
    (place / "tokenizer.json").write_text(json.dumps(document))
    if (text / "tokenizer_config.json").is_file():
        described = (text / "tokenizer_config.json").read_text()
        (place / "tokenizer_config.json").write_text(described)
    (place / "preprocessor_config.json").write_text(json.dumps(processor(family)))
    return model, place


def processor(family: str) -> dict[str, Any]:
    """preprocessor_config.json, as the families' checkpoints have it."""
    if family == "llava_onevision":
        return {"size": {"height": SIZE, "width": SIZE}, "image_grid_pinpoints": GRIDS}
    made: dict[str, Any] = {
        "size": {"shortest_edge": SIZE},
        "crop_size": {"height": SIZE, "width": SIZE},
        "resample": 3,
    }
    return made | ({"image_grid_pinpoints": GRIDS} if family == "llava_next" else {})
