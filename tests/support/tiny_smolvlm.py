"""SmolVLM and Idefics3 in miniature with random weights, and their folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from support.tiny_llm import write_tiny_llm

SIZE, PATCH, SCALE = 32, 4, 2
ROWS = (SIZE // PATCH // SCALE) ** 2
MARKS = ["<image>", "<fake_token_around_image>", "<global-img>"]
PLACES = [f"<row_{r}_col_{c}>" for r in range(1, 5) for c in range(1, 5)]


def tiny_smolvlm(folder: Path, family: str = "smolvlm") -> tuple[Any, Path]:
    import torch
    from transformers import (
        Idefics3Config,
        Idefics3ForConditionalGeneration,
        LlamaConfig,
        SmolVLMConfig,
        SmolVLMForConditionalGeneration,
    )

    text = write_tiny_llm(folder / "text")
    document = json.loads((text / "tokenizer.json").read_text())
    known = max(
        [*document["model"]["vocab"].values(), *(t["id"] for t in document["added_tokens"])]
    )
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    for number, name in enumerate([*MARKS, *PLACES], start=known + 1):
        document["added_tokens"].append({"id": number, "content": name, "special": True, **flags})
    classes = {
        "smolvlm": (SmolVLMConfig, SmolVLMForConditionalGeneration),
        "idefics3": (Idefics3Config, Idefics3ForConditionalGeneration),
    }
    make_config, make_model = classes[family]
    torch.manual_seed(0)
    vision = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "image_size": SIZE,
        "patch_size": PATCH,
    }
    config = make_config(
        vision_config=vision,
        text_config=LlamaConfig(
            vocab_size=known + 1 + len(MARKS) + len(PLACES),
            hidden_size=64,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=1024,
            bos_token_id=1,
            eos_token_id=2,
            pad_token_id=0,
        ),
        image_token_id=known + 1,
        scale_factor=SCALE,
    )
    model = make_model(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter) / max(parameter.shape) ** 0.25)
    place = folder / family
    model.save_pretrained(place)
    (place / "tokenizer.json").write_text(json.dumps(document))
    processor = {
        "size": {"longest_edge": 4 * SIZE},
        "max_image_size": {"longest_edge": SIZE},
        "do_image_splitting": True,
        "resample": 1,
    }
    (place / "preprocessor_config.json").write_text(json.dumps(processor))
    return model, place
