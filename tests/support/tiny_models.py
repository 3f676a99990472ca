"""Tiny models of transformers as checkpoint folders, tokenizer included."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

VOCABULARY = 272  # the 256 bytes, the special tokens, and some that no text gives

BASE: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "bos_token_id": 256,
    "eos_token_id": 257,
}


def tiny_model(model_type: str, seed: int = 0, **changes: Any) -> Any:
    """A random model whose logits vary as those of a trained one do."""
    import torch
    import transformers

    torch.manual_seed(seed)
    config = transformers.AutoConfig.for_model(model_type, **{**BASE, **changes})
    model = transformers.AutoModelForCausalLM.from_config(config).float().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=1.5 * parameter.shape[1] ** -0.5)
            elif "norm" in name:
                parameter.add_(0.3 * torch.randn_like(parameter))
            else:
                parameter.normal_(std=0.5)
    return model


def write_tokenizer(folder: Path, tokens: int = 258) -> None:
    """A byte-level tokenizer.json: one token per byte, and special ones after them."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({char: i for i, char in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    names = ["<s>", "</s>", *(f"<extra_{i}>" for i in range(tokens - 258))]
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in names])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": True}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def write_checkpoint(folder: Path, model: Any) -> Path:
    """A Hugging Face folder with safetensors and a tokenizer."""
    model.save_pretrained(folder)
    write_tokenizer(folder)
    return folder


def logits_of(model: Any, tokens: NDArray[np.int32]) -> NDArray[np.float32]:
    """transformers' logits after every token, [S, vocab]."""
    import torch

    with torch.no_grad():
        logits = model(torch.from_numpy(tokens.astype(np.int64))[None]).logits[0]
    result: NDArray[np.float32] = logits.float().numpy()
    return result
