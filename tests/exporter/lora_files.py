"""LoRA adapters as PEFT writes them, and what PEFT makes of a model with one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

TARGETS = ("q_proj", "v_proj", "down_proj")


def write_lora(
    folder: Path,
    model: Any,
    targets: tuple[str, ...] = TARGETS,
    *,
    rank: int = 4,
    alpha: float = 6,
    seed: int = 3,
    **config: Any,
) -> Path:
    """An adapter with random numbers for the layers whose names end so."""
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, weight in model.state_dict().items():
        layer = name.removesuffix(".weight")
        if layer.endswith(targets):
            key = f"base_model.model.{layer}"
            out, inputs = weight.shape
            a = torch.randn(rank, inputs, generator=generator) / inputs**0.5
            b = torch.randn(out, rank, generator=generator) / rank**0.5
            pair = {f"{key}.lora_A.weight": a, f"{key}.lora_B.weight": b}
            tensors |= {part: values.half().float() for part, values in pair.items()}
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "adapter_model.safetensors")
    document = {
        "peft_type": "LORA",
        "r": rank,
        "lora_alpha": alpha,
        "target_modules": list(targets),
        "bias": "none",
        "base_model_name_or_path": "someone/tiny",
        **config,
    }
    (folder / "adapter_config.json").write_text(json.dumps(document))
    return folder


def add_lora(model: Any, folder: Path, scale: float = 1.5) -> Any:
    """The model with ``scale * B @ A`` added to its weights, as PEFT merges them."""
    from safetensors.torch import load_file

    tensors = load_file(folder / "adapter_model.safetensors")
    with torch.no_grad():
        for name, weight in model.state_dict().items():
            key = f"base_model.model.{name.removesuffix('.weight')}"
            if f"{key}.lora_A.weight" in tensors:
                a, b = (tensors[f"{key}.lora_{part}.weight"] for part in "AB")
                weight.add_(scale * (b @ a))
    return model
