"""Small checkpoints in every format, written with the formats' own libraries."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
import transformers
from gguf.quants import quantize
from numpy.typing import NDArray

Arrays = dict[str, NDArray[np.float32]]

TINY = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 40,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "max_position_embeddings": 128,
}


def tiny_model(model_type: str = "llama", **changes: Any) -> Any:
    """A random model of transformers, small enough for any test."""
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(model_type, **{**TINY, **changes})
    model = transformers.AutoModelForCausalLM.from_config(config).float().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # Norms of ones would hide a mistake; these stay exact when 1 is added.
            if "norm" in name:
                parameter.copy_(torch.randint(0, 256, parameter.shape) / 256)
    return model


def arrays(model: Any) -> Arrays:
    """The weights under Hugging Face's names; a tied head is not repeated."""
    state = {
        published: array
        for name, tensor in model.state_dict().items()
        for published, array in _published(name, tensor.detach().numpy().copy())
    }
    if model.config.tie_word_embeddings:
        state.pop("lm_head.weight", None)
    return state


def _published(name: str, array: NDArray[np.float32]) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Experts' parts, which transformers holds in two tensors, in three as others know them."""
    name = name.replace("block_sparse_moe.router.", "block_sparse_moe.gate.")
    block = name.replace("block_sparse_moe", "mlp").removesuffix(".gate_up_proj")
    if name.endswith("experts.gate_up_proj"):
        half = array.shape[1] // 2
        yield f"{block}.gate_proj.weight", array[:, :half].copy()
        yield f"{block}.up_proj.weight", array[:, half:].copy()
    elif name.endswith("experts.down_proj"):
        yield f"{block}.weight", array
    else:
        yield name, array


def interleave(rows: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Rotary rows from Hugging Face's order to Meta's: row 2i and 2i+1 are a pair."""
    result = np.empty_like(rows)
    size = len(rows) // heads
    for head in range(heads):
        for pair in range(size // 2):
            for half in range(2):
                source = head * size + half * (size // 2) + pair
                result[head * size + 2 * pair + half] = rows[source]
    return result


def interleaved(weights: Arrays, config: Any) -> Arrays:
    result = dict(weights)
    for name, rows in weights.items():
        if ".q_proj." in name:
            result[name] = interleave(rows, config.num_attention_heads)
        elif ".k_proj." in name:
            result[name] = interleave(rows, config.num_key_value_heads)
    return result


META_NAMES = {
    "model.embed_tokens": "tok_embeddings",
    "model.norm": "norm",
    "lm_head": "output",
    "model.layers": "layers",
    "self_attn.q_proj": "attention.wq",
    "self_attn.k_proj": "attention.wk",
    "self_attn.v_proj": "attention.wv",
    "self_attn.o_proj": "attention.wo",
    "mlp.gate_proj": "feed_forward.w1",
    "mlp.down_proj": "feed_forward.w2",
    "mlp.up_proj": "feed_forward.w3",
    "input_layernorm": "attention_norm",
    "post_attention_layernorm": "ffn_norm",
}


def meta_state(weights: Arrays, config: Any) -> dict[str, torch.Tensor]:
    """The weights as Meta's code stores them."""
    state = {}
    for name, values in interleaved(weights, config).items():
        for old, new in META_NAMES.items():
            name = name.replace(old, new)  # noqa: PLW2901
        state[name] = torch.from_numpy(values.copy())
    return state


def meta_params(config: Any) -> dict[str, Any]:
    return {
        "dim": config.hidden_size,
        "n_layers": config.num_hidden_layers,
        "n_heads": config.num_attention_heads,
        "n_kv_heads": config.num_key_value_heads,
        "vocab_size": -1,
        "multiple_of": 32,
        "norm_eps": 1e-5,
        "rope_theta": 10000.0,
    }


def write_meta(folder: Path, state: dict[str, torch.Tensor], params: dict[str, Any]) -> Path:
    folder.mkdir(exist_ok=True)
    torch.save(state, folder / "consolidated.00.pth")
    (folder / "params.json").write_text(json.dumps(params))
    return folder


def write_llama2c(path: Path, model: Any) -> Path:
    """The legacy layout: all layers of one kind together."""
    config, state = model.config, meta_state(arrays(model), model.config)
    vocab = config.vocab_size if config.tie_word_embeddings else -config.vocab_size
    sizes = (config.hidden_size, config.intermediate_size, config.num_hidden_layers)
    heads = (config.num_attention_heads, config.num_key_value_heads)
    kinds = ["attention_norm", "attention.wq", "attention.wk", "attention.wv", "attention.wo"]
    kinds += ["ffn_norm", "feed_forward.w1", "feed_forward.w2", "feed_forward.w3"]
    order = ["tok_embeddings.weight"]
    for kind in kinds:
        order += [f"layers.{layer}.{kind}.weight" for layer in range(config.num_hidden_layers)]
    order.append("norm.weight")
    with path.open("wb") as file:
        file.write(struct.pack("<7i", *sizes, *heads, vocab, config.max_position_embeddings))
        for name in order:
            file.write(state[name].numpy().astype("<f4").tobytes())
        file.write(bytes(2 * config.max_position_embeddings * (config.head_dim // 2) * 4))
        if not config.tie_word_embeddings:
            file.write(state["output.weight"].numpy().astype("<f4").tobytes())
    return path


def gguf_names(architecture: str, layers: int) -> Any:
    """The gguf library's own table from Hugging Face's names to GGUF's."""
    numbers = {name: number for number, name in gguf.MODEL_ARCH_NAMES.items()}
    return gguf.get_tensor_name_map(numbers[architecture], layers)


def write_gguf(
    path: Path,
    model: Any,
    architecture: str = "llama",
    *,
    kind: str = "F32",
    kinds: dict[str, str] | None = None,
    metadata: dict[str, Any] | None = None,
    extra: Arrays | None = None,
) -> Path:
    """A GGUF file as llama.cpp's converter would write it; ``kinds`` are for parts of names."""
    config = model.config
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    if getattr(config, "rms_norm_eps", None) is not None:
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    else:
        names = ("norm_epsilon", "layer_norm_eps", "norm_eps")
        writer.add_layer_norm_eps(
            next((getattr(config, n) for n in names if hasattr(config, n)), 1e-5)
        )
    writer.add_key_length(config.head_dim)
    for key, value in (metadata or {}).items():
        name = (
            key if key.startswith(("general.", "tokenizer.", "split.")) else f"{architecture}.{key}"
        )
        if isinstance(value, str):
            writer.add_string(name, value)
        elif isinstance(value, float):
            writer.add_float32(name, value)
        elif isinstance(value, list):
            writer.add_array(name, value)
        else:
            writer.add_uint32(name, value)
    weights = arrays(model)
    if architecture in ("llama", "granite", "granitemoe", "smollm3", "arcee", "olmo"):
        weights = interleaved(weights, config)
    names = gguf_names(architecture, config.num_hidden_layers)
    for name, values in weights.items():
        shifted = architecture.startswith(("gemma", "nemotron")) and name.endswith("norm.weight")
        stored = values + 1 if shifted else values
        found = next((k for part, k in (kinds or {}).items() if part in name), kind)
        writer_kind = gguf.GGMLQuantizationType[found if values.ndim > 1 else "F32"]
        writer.add_tensor(
            names.get_name(name, try_suffixes=(".weight", ".bias")),
            quantize(stored, writer_kind),
            raw_dtype=writer_kind,
        )
    for name, values in (extra or {}).items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def assert_same(checkpoint: Any, expected: Arrays) -> None:
    """The same names, shapes and values, bit for bit."""
    assert sorted(checkpoint.tensors) == sorted(expected)
    for name, values in expected.items():
        got = checkpoint.read(name)
        assert got.dtype == np.float32 and got.flags.c_contiguous
        assert got.shape == checkpoint.tensors[name].shape == values.shape
        np.testing.assert_array_equal(got, values, err_msg=name)
