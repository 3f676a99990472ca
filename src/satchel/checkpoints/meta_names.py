"""Tensor names and layout of Meta's Llama code, which llama2.c shares."""

from __future__ import annotations

import re
from pathlib import Path

from satchel.checkpoints.stored import StoredTensor
from satchel.errors import CheckpointError

TOP_NAMES = {
    "tok_embeddings.weight": "model.embed_tokens.weight",
    "norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
LAYER_NAMES = {
    "attention.wq.weight": "self_attn.q_proj.weight",
    "attention.wk.weight": "self_attn.k_proj.weight",
    "attention.wv.weight": "self_attn.v_proj.weight",
    "attention.wo.weight": "self_attn.o_proj.weight",
    "feed_forward.w1.weight": "mlp.gate_proj.weight",
    "feed_forward.w2.weight": "mlp.down_proj.weight",
    "feed_forward.w3.weight": "mlp.up_proj.weight",
    "attention.wq.bias": "self_attn.q_proj.bias",
    "attention.wk.bias": "self_attn.k_proj.bias",
    "attention.wv.bias": "self_attn.v_proj.bias",
    "attention.q_norm_fn.weight": "self_attn.q_norm.weight",
    "attention.k_norm_fn.weight": "self_attn.k_norm.weight",
    "attention_norm.weight": "input_layernorm.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
}
# Tables that follow from the configuration.
DERIVED = {"rope.freqs", "freqs_cos", "freqs_sin", "freqs_cis"}
_LAYER = re.compile(r"layers\.(\d+)\.(.+)")
# What a quantised layer has besides its weight.
_PARTS = re.compile(r"(.+)\.(scales|zeros|adaptor\.[AB]\.weight)")


def huggingface_name(name: str, where: Path) -> str | None:
    """The Hugging Face name of a tensor of Meta's; None for one that is only derived."""
    name = name.removeprefix("_orig_mod.")  # left by torch.compile
    if name in DERIVED:
        return None
    if match := _PARTS.fullmatch(name):
        weight = huggingface_name(f"{match[1]}.weight", where)
        return None if weight is None else f"{weight.removesuffix('.weight')}.{match[2]}"
    if name in TOP_NAMES:
        return TOP_NAMES[name]
    if (match := _LAYER.fullmatch(name)) and match[2] in LAYER_NAMES:
        return f"model.layers.{int(match[1])}.{LAYER_NAMES[match[2]]}"
    raise CheckpointError(
        f"{where}: tensor {name} has no place in a Llama model", "Only dense Llama models are read"
    )


def is_part(name: str) -> bool:
    """Whether a tensor is not a weight but belongs to a quantised one."""
    return _PARTS.fullmatch(name) is not None


def rename_and_split(
    tensors: dict[str, StoredTensor], heads: int, kv_heads: int, where: Path, paired: bool = True
) -> dict[str, StoredTensor]:
    """Tensors of Meta's under Hugging Face names, rotary rows marked as interleaved if paired."""
    renamed: dict[str, StoredTensor] = {}
    for meta_name, found in tensors.items():
        tensor = found
        name = huggingface_name(meta_name, where)
        if name is None:
            continue
        if name in renamed:
            raise CheckpointError(f"{where}: tensor {name} is in it twice", "Fetch the file again")
        for layer, count in ((".q_proj.", heads), (".k_proj.", kv_heads)):
            # An adaptor's A has columns like its layer, and rows of its own.
            if paired and layer in name and not name.endswith("adaptor.A.weight"):
                tensor = tensor.interleaved(meta_name, count)
        renamed[name] = tensor
    return renamed
