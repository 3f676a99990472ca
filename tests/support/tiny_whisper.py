"""Whisper in miniature with random weights: transformers' model, its checkpoints in all forms."""

from __future__ import annotations

import base64
import json
import re
import struct
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import satchel
from satchel.checkpoints.base import TokenizerSource
from satchel.llm.tokenizer_sources.whisper_ranks import read_whisper

MULTILINGUAL, ENGLISH, LARGE_V3 = 51865, 51864, 51866


def tiny_sizes(vocab_size: int = MULTILINGUAL, **other: int) -> dict[str, int]:
    """Sizes like those of the real ones, but small; 2 seconds of audio in place of 30."""
    sizes = {
        "vocab_size": vocab_size,
        "num_mel_bins": 80,
        "d_model": 32,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 128,
        "decoder_ffn_dim": 128,
        "max_source_positions": 100,
        "max_target_positions": 64,
    }
    return {**sizes, **other}


def torch_model(seed: int = 0, **sizes: int) -> Any:
    """transformers' model, with weights that are far enough from zero to tell mistakes."""
    import torch
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    torch.manual_seed(seed)
    ends = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), 50256)
    config = WhisperConfig(**tiny_sizes(**sizes), **ends, decoder_start_token_id=50257)
    model = WhisperForConditionalGeneration(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter) / max(parameter.shape) ** 0.25)
    return model


def ranks_file(path: Path, vocab_size: int = MULTILINGUAL) -> Path:
    """As many words as the real vocabulary has: all bytes, and pairs of them."""
    words = 50256 if vocab_size == ENGLISH else 50257
    path.write_text(
        "".join(f"{base64.b64encode(word).decode()} {n}\n" for n, word in enumerate(_words(words)))
    )
    return path


def _words(count: int) -> list[bytes]:
    pairs = (bytes([a, b]) for a in range(32, 256) for b in range(256))
    return [*(bytes([n]) for n in range(256)), *(next(pairs) for _ in range(count - 256))]


@cache
def _tokenizer_json(vocab_size: int) -> str:
    words = _words(50256 if vocab_size == ENGLISH else 50257)
    known = {"vocab_size": vocab_size, "tokens": words}
    return read_whisper(TokenizerSource("whisper", Path("words"), known)).json


def write_huggingface(folder: Path, model: Any) -> Path:
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_text(_tokenizer_json(model.config.vocab_size))
    return folder


def _openai_name(name: str) -> str:
    """transformers' name of a tensor as openai-whisper calls it."""
    name = name.removeprefix("model.")
    for theirs, ours in (
        ("layers.", "blocks."),
        ("self_attn_layer_norm", "attn_ln"),
        ("encoder_attn_layer_norm", "cross_attn_ln"),
        ("final_layer_norm", "mlp_ln"),
        ("self_attn", "attn"),
        ("encoder_attn", "cross_attn"),
        ("q_proj", "query"),
        ("k_proj", "key"),
        ("v_proj", "value"),
        ("out_proj", "out"),
        ("fc1", "mlp.0"),
        ("fc2", "mlp.2"),
        ("embed_tokens", "token_embedding"),
        ("embed_positions.weight", "positional_embedding"),
        ("encoder.layer_norm", "encoder.ln_post"),
        ("decoder.layer_norm", "decoder.ln"),
    ):
        name = name.replace(theirs, ours)
    return name


def _tensors(model: Any) -> dict[str, Any]:
    state = model.state_dict()
    return {_openai_name(k): v for k, v in state.items() if k != "proj_out.weight"}


def _dims(model: Any) -> dict[str, int]:
    c = model.config
    return {
        "n_mels": c.num_mel_bins,
        "n_vocab": c.vocab_size,
        "n_audio_ctx": c.max_source_positions,
        "n_audio_state": c.d_model,
        "n_audio_head": c.encoder_attention_heads,
        "n_audio_layer": c.encoder_layers,
        "n_text_ctx": c.max_target_positions,
        "n_text_state": c.d_model,
        "n_text_head": c.decoder_attention_heads,
        "n_text_layer": c.decoder_layers,
    }


def write_pt(path: Path, model: Any) -> Path:
    """As openai-whisper saves it: some matrices lie there by columns."""
    import torch

    state = {
        name: tensor.t().contiguous().t() if re.search(r"mlp\.0\.weight", name) else tensor
        for name, tensor in _tensors(model).items()
    }
    torch.save({"dims": _dims(model), "model_state_dict": state}, path)
    vocab = model.config.vocab_size
    name = "gpt2.tiktoken" if vocab == ENGLISH else "multilingual.tiktoken"
    ranks_file(path.parent / name, vocab)
    return path


def write_ggml(path: Path, model: Any) -> Path:
    """As whisper.cpp's converter writes it, in floats."""
    dims = _dims(model)
    order = "vocab audio_ctx audio_state audio_head audio_layer text_ctx text_state text_head"
    names = [f"n_{name}" for name in (*order.split(), "text_layer", "mels")]
    filters = np.zeros((dims["n_mels"], 201), "<f4")
    with path.open("wb") as file:
        file.write(struct.pack("<I", 0x67676D6C))
        file.write(struct.pack("<11i", *(dims[name] for name in names), 0))
        file.write(struct.pack("<2i", *filters.shape) + filters.tobytes())
        words = _words(50257)
        file.write(struct.pack("<i", len(words)))
        for word in words:
            file.write(struct.pack("<i", len(word)) + word)
        for name, tensor in _tensors(model).items():
            array = tensor.numpy().astype("<f4")
            if name.endswith("conv1.bias") or name.endswith("conv2.bias"):
                array = array.reshape(-1, 1)
            file.write(struct.pack("<3i", array.ndim, len(name), 0))
            file.write(struct.pack(f"<{array.ndim}i", *array.shape[::-1]))
            file.write(name.encode() + array.tobytes())
    return path


def export_tiny(folder: Path, recipe: str = "fp32", **sizes: int) -> tuple[Any, Path]:
    """A model and its program."""
    model = torch_model(**sizes)
    checkpoint = write_huggingface(folder / "tiny", model)
    return model, satchel.export(checkpoint, folder / "tiny.satchel", recipe=recipe)


def set_generation(folder: Path, **fields: Any) -> None:
    path = folder / "generation_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))
