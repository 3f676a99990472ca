"""llama.cpp through llama-cpp-python: Q4_0 written from a checkpoint, or a GGUF as it is.

    python benchmarks/peers/llamacpp_peer.py prepare CHECKPOINT_FOLDER OUT
    python benchmarks/peers/llamacpp_peer.py bench OUT --threads 2 --json

Every matrix is Q4_0, the output head too, where llama.cpp's own tool would keep more bits there:
fewer bytes, so in its favour.
"""

from __future__ import annotations

import ctypes
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from verbs import Prepared, kv_bytes, main, read_config

BLOCK = 32
ROWS_AT_ONCE = 4096


def checkpoint_tensors(folder: Path) -> Iterator[tuple[str, np.ndarray]]:
    """bf16 tensors one after another, as the uint16 that they are, mapped and not read."""
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length))
        for name, entry in header.items():
            if name != "__metadata__":
                begin = 8 + length + entry["data_offsets"][0]
                shape = tuple(entry["shape"])
                yield name, np.memmap(path, np.uint16, "r", begin, shape)


def to_float(rows: np.ndarray) -> np.ndarray:
    values: np.ndarray = (rows.astype(np.uint32) << 16).view(np.float32)
    return values


def quantize_q4_0(rows: np.ndarray) -> np.ndarray:
    """Blocks of a half-precision scale and 32 nibbles: the first 16 low, the last 16 high."""
    values = rows.reshape(-1, BLOCK)
    peak = np.take_along_axis(values, np.abs(values).argmax(1)[:, None], 1)
    scale = peak / -8
    inverse = np.divide(1, scale, out=np.zeros_like(scale), where=scale != 0)
    codes = np.clip(np.trunc(values * inverse + 8.5), 0, 15).astype(np.uint8)
    nibbles = codes[:, :16] | codes[:, 16:] << 4
    blocks = np.concatenate([scale.astype(np.float16).view(np.uint8), nibbles], 1)
    return blocks.reshape(rows.shape[0], -1)


def pair_halves(rows: np.ndarray, heads: int) -> np.ndarray:
    """llama.cpp's llama rotates neighbouring values, checkpoints have the two halves of a head."""
    split = rows.reshape(heads, 2, -1, rows.shape[1])
    paired: np.ndarray = split.swapaxes(1, 2).reshape(rows.shape)
    return paired


def describe(writer: Any, config: dict[str, Any]) -> None:
    """The model's sizes. Rotary scaling is left out: it changes no speed."""
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_theta"])
    rotated = config["head_dim"] * config.get("partial_rotary_factor", 1.0)
    writer.add_rope_dimension_count(int(rotated))
    writer.add_vocab_size(config["vocab_size"])


def copy_tokenizer(writer: Any, source: Path, vocabulary: int) -> None:
    """Another file's tokenizer and template; further tokens have texts that no prompt has."""
    import gguf

    for name, field in gguf.GGUFReader(source).fields.items():
        if not name.startswith("tokenizer."):
            continue
        value, kind = field.contents(), field.types[0]
        of = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        if name == "tokenizer.ggml.tokens":
            value += [f"\u0120unused{number}" for number in range(len(value), vocabulary)]
        if name == "tokenizer.ggml.token_type":
            value += [int(gguf.TokenType.NORMAL)] * (vocabulary - len(value))
        writer.add_key_value(name, value, kind, of)


def write_gguf(
    checkpoint: Path, path: Path, config: dict[str, Any], tokenizer: Path | None = None
) -> None:
    """Quantises one tensor at a time; ``tokenizer`` is a GGUF file whose texts it is to read."""
    import gguf

    kind, layers = config["model_type"], config["num_hidden_layers"]
    architecture = {name: number for number, name in gguf.MODEL_ARCH_NAMES.items()}[kind]
    names = gguf.get_tensor_name_map(architecture, layers)
    writer = gguf.GGUFWriter(path, kind)
    describe(writer, config)
    if tokenizer is None:
        writer.add_tokenizer_model("no_vocab")  # the benchmark feeds ids
    else:
        copy_tokenizer(writer, tokenizer, config["vocab_size"])
    q4_0 = gguf.GGMLQuantizationType.Q4_0
    for name, tensor in checkpoint_tensors(checkpoint):
        new = names.get_name(name, try_suffixes=(".weight",))
        if new is None:
            raise SystemExit(f"llama.cpp has no name for {name} in {kind}")
        if tensor.ndim == 1:
            writer.add_tensor_info(new, tensor.shape, np.dtype(np.float32), tensor.size * 4)
        else:
            shape = (tensor.shape[0], tensor.shape[1] // BLOCK * 18)
            size = shape[0] * shape[1]
            writer.add_tensor_info(new, shape, np.dtype(np.uint8), size, raw_dtype=q4_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for name, tensor in checkpoint_tensors(checkpoint):
        heads = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}
        paired = config.get(heads.get(name.split(".")[-2], "")) if kind == "llama" else None
        if tensor.ndim == 1:
            writer.write_tensor_data(to_float(tensor))
            continue
        source = pair_halves(tensor, paired) if paired else tensor
        parts = [
            quantize_q4_0(to_float(source[row : row + ROWS_AT_ONCE]))
            for row in range(0, len(source), ROWS_AT_ONCE)
        ]
        writer.write_tensor_data(np.concatenate(parts))
    writer.close()


def prepare(source: Path, out: Path) -> Prepared:
    import gguf

    model = out / "model.gguf"
    model.unlink(missing_ok=True)
    if source.suffix == ".gguf":
        os.symlink(source, model)
    else:
        write_gguf(source, model, read_config(source))
    reader = gguf.GGUFReader(model)
    sizes = {tensor.name: int(tensor.n_bytes) for tensor in reader.tensors}
    lookup = sizes["token_embd.weight"] if "output.weight" in sizes else 0
    kinds = [tensor.tensor_type.name for tensor in reader.tensors if len(tensor.shape) > 1]

    def number(name: str) -> int:
        field = reader.get_field(f"{reader.fields['general.architecture'].contents()}.{name}")
        return int(field.contents()) if field else 0

    width = number("attention.key_length") or (
        number("embedding_length") // number("attention.head_count")
    )
    vocabulary = next(int(t.shape[1]) for t in reader.tensors if t.name == "token_embd.weight")
    sizes_of_cache = {
        "num_hidden_layers": number("block_count"),
        "num_key_value_heads": number("attention.head_count_kv"),
        "head_dim": width,
    }
    precision = max(set(kinds), key=kinds.count)
    read = sum(sizes.values()) - lookup
    return Prepared(
        "llama.cpp", model.name, vocabulary, read, kv_bytes(sizes_of_cache, 2), precision
    )


class LlamaCpp:
    def __init__(self, path: Path, threads: int, context: int) -> None:
        import llama_cpp

        self.api, self.version = llama_cpp, f"llama-cpp-python {llama_cpp.__version__}"
        llama_cpp.llama_backend_init()
        self.model = llama_cpp.llama_model_load_from_file(
            str(path).encode(), llama_cpp.llama_model_default_params()
        )
        if not self.model:
            raise SystemExit(f"llama.cpp cannot load {path}")
        settings = llama_cpp.llama_context_default_params()
        settings.n_ctx = context
        settings.n_batch = settings.n_ubatch = context  # the prompt in one go
        settings.n_threads = settings.n_threads_batch = threads
        self.context = llama_cpp.llama_init_from_model(self.model, settings)
        vocabulary = llama_cpp.llama_model_get_vocab(self.model)
        self.vocabulary = llama_cpp.llama_vocab_n_tokens(vocabulary)

    def feed(self, tokens: list[int]) -> int:
        ids = (ctypes.c_int32 * len(tokens))(*tokens)  # the batch points into it
        batch = self.api.llama_batch_get_one(ids, len(tokens))
        if self.api.llama_decode(self.context, batch):
            raise SystemExit("llama_decode failed")
        logits = self.api.llama_get_logits_ith(self.context, -1)
        return int(np.ctypeslib.as_array(logits, (self.vocabulary,)).argmax())

    def generate(self, prompt: list[int], new_tokens: int) -> tuple[float, float]:
        self.api.llama_memory_clear(self.api.llama_get_memory(self.context), True)
        started = time.perf_counter()
        token = self.feed(prompt)
        first = time.perf_counter()
        for _ in range(new_tokens - 1):
            token = self.feed([token])
        return first - started, time.perf_counter() - first


if __name__ == "__main__":
    main(__doc__ or "", prepare, LlamaCpp)
