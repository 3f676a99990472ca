"""Checkpoints as GPTQ and AWQ tools write them, one code after another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from support.tiny_models import write_tokenizer

AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


def pack(values: torch.Tensor, bits: int, order: Any = None) -> torch.Tensor:
    """Values [rows, columns] of so many bits, side by side in integers along the columns."""
    each = 32 // bits
    packed = torch.zeros(values.shape[0], values.shape[1] // each, dtype=torch.int64)
    for column in range(packed.shape[1]):
        for place in range(each):
            source = column * each + (order[place] if order else place)
            packed[:, column] |= values[:, source].long() << (bits * place)
    return torch.where(packed >= 2**31, packed - 2**32, packed).to(torch.int32)


def quantize_layer(
    weight: torch.Tensor, method: str, bits: int, group: int, sym: bool, groups: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Codes [out, in], zero points and scales [out, groups], and the weight they stand for."""
    out, count = weight.shape[0], int(groups.max()) + 1
    codes, meant = torch.zeros(weight.shape, dtype=torch.int64), torch.zeros_like(weight)
    zeros, scales = torch.zeros(out, count, dtype=torch.int64), torch.zeros(out, count)
    highest = 2**bits - 1
    for g in range(count):
        part = weight[:, groups == g]
        low, high = part.amin(1).clamp(max=0), part.amax(1).clamp(min=0)
        if sym:
            high = torch.maximum(high, -low)
            low = -high
        scale = ((high - low) / highest).half().float()
        zero = torch.full((out,), 2 ** (bits - 1)) if sym else (-low / scale).round().long()
        code = (part / scale[:, None]).round().long() + zero[:, None]
        codes[:, groups == g] = code = code.clamp(0, highest)
        meant[:, groups == g] = (code - zero[:, None]) * scale[:, None]
        zeros[:, g], scales[:, g] = zero, scale
    return codes, zeros, scales, meant


def write_packed(
    folder: Path,
    model: Any,
    method: str,
    *,
    bits: int = 4,
    group: int = 32,
    sym: bool = False,
    scattered: bool = False,
    **config: Any,
) -> Path:
    """A checkpoint of ``model``, whose layers become what the stored codes stand for."""
    tensors, generator = {}, torch.Generator().manual_seed(1)
    state = model.state_dict()
    with torch.no_grad():
        for name, weight in state.items():
            if ".layers." not in name or weight.dim() < 2:
                if name != "lm_head.weight" or not model.config.tie_word_embeddings:
                    tensors[name] = weight.half() if weight.dim() > 1 else weight
                    weight.copy_(tensors[name].float())
                continue
            inputs = weight.shape[1]
            size = inputs if group == -1 else group
            groups = torch.arange(inputs) // size
            if scattered:
                groups = groups[torch.randperm(inputs, generator=generator)]
            layer = name.removesuffix(".weight")
            codes, zeros, scales, meant = quantize_layer(weight, method, bits, group, sym, groups)
            weight.copy_(meant)
            if method == "gptq":
                stored = zeros.T if config.get("checkpoint_format") == "gptq_v2" else zeros.T - 1
                tensors[f"{layer}.qweight"] = pack(codes, bits).T.contiguous()
                tensors[f"{layer}.qzeros"] = pack(stored % 2**bits, bits)
                tensors[f"{layer}.g_idx"] = groups.to(torch.int32)
            else:
                tensors[f"{layer}.qweight"] = pack(codes.T, bits, AWQ_ORDER)
                tensors[f"{layer}.qzeros"] = pack(zeros.T, bits, AWQ_ORDER)
            tensors[f"{layer}.scales"] = scales.T.half().contiguous()
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors")
    described = {"quant_method": method, "bits": bits, "group_size": group, **config}
    if method == "gptq":
        described |= {"sym": sym, "desc_act": scattered}
    else:
        described |= {"zero_point": True, "version": "gemm"}
    document = {**model.config.to_dict(), "quantization_config": described}
    (folder / "config.json").write_text(json.dumps(document))
    write_tokenizer(folder)
    return folder
