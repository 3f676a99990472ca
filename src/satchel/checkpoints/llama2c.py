"""llama2.c's .bin files: a header of seven integers, then float32 tensors in a fixed order."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from satchel.checkpoints.base import Checkpoint
from satchel.checkpoints.decoding import F32
from satchel.checkpoints.meta_names import rename_and_split
from satchel.checkpoints.stored import StoredCheckpoint, StoredTensor
from satchel.checkpoints.tokenizer_files import STORY_ENDS, llama2c_tokenizer
from satchel.checkpoints.weightfile import WeightFile, open_files
from satchel.errors import CheckpointError

HEADER = struct.Struct("<7i")
VERSIONED_MAGIC = b"24ka"  # "ak42", of the newer layouts
LIMIT = 1 << 24  # more than any field of a real header


@dataclass(frozen=True)
class _Header:
    dim: int
    hidden_dim: int
    layers: int
    heads: int
    kv_heads: int
    vocab: int  # negative: the output head is not the embedding
    context: int

    @property
    def vocab_size(self) -> int:
        return abs(self.vocab)

    @property
    def head_size(self) -> int:
        return self.dim // self.heads

    def is_plausible(self) -> bool:
        sizes = (self.dim, self.hidden_dim, self.layers, self.heads, self.kv_heads, self.context)
        return (
            all(0 < size < LIMIT for size in (*sizes, self.vocab_size))
            and self.dim % (2 * self.heads) == 0
            and self.heads % self.kv_heads == 0
        )

    def parts(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Meta's names and shapes in the order of the file; {} is the layer."""
        kv_dim = self.kv_heads * self.head_size
        yield "tok_embeddings.weight", (self.vocab_size, self.dim)
        yield "layers.{}.attention_norm.weight", (self.dim,)
        yield "layers.{}.attention.wq.weight", (self.dim, self.dim)
        yield "layers.{}.attention.wk.weight", (kv_dim, self.dim)
        yield "layers.{}.attention.wv.weight", (kv_dim, self.dim)
        yield "layers.{}.attention.wo.weight", (self.dim, self.dim)
        yield "layers.{}.ffn_norm.weight", (self.dim,)
        yield "layers.{}.feed_forward.w1.weight", (self.hidden_dim, self.dim)
        yield "layers.{}.feed_forward.w2.weight", (self.dim, self.hidden_dim)
        yield "layers.{}.feed_forward.w3.weight", (self.hidden_dim, self.dim)
        yield "norm.weight", (self.dim,)
        yield "freqs_cos", (self.context, self.head_size // 2)
        yield "freqs_sin", (self.context, self.head_size // 2)
        if self.vocab < 0:
            yield "output.weight", (self.vocab_size, self.dim)

    def file_size(self) -> int:
        return HEADER.size + 4 * sum(
            math.prod(shape) * (self.layers if "{}" in name else 1) for name, shape in self.parts()
        )


def is_llama2c_file(path: Path) -> bool:
    """Whether header and size are those of a llama2.c model."""
    with path.open("rb") as file:
        start = file.read(HEADER.size)
    if len(start) < HEADER.size:
        return False
    header = _Header(*HEADER.unpack(start))
    return header.is_plausible() and header.file_size() == path.stat().st_size


def open_llama2c(path: Path) -> Checkpoint:
    """Open a llama2.c .bin file."""
    with open_files(path) as files:
        header = _read_header(files[0])
        tensors: dict[str, StoredTensor] = {}
        offset = HEADER.size
        for part, shape in header.parts():
            for layer in range(header.layers if "{}" in part else 1):
                tensors[part.format(layer)] = StoredTensor(files[0], offset, shape, "f32", F32)
                offset += 4 * math.prod(shape)
        config = {
            "model_type": "llama",
            "hidden_size": header.dim,
            "intermediate_size": header.hidden_dim,
            "num_hidden_layers": header.layers,
            "num_attention_heads": header.heads,
            "num_key_value_heads": header.kv_heads,
            "head_dim": header.head_size,
            "hidden_act": "silu",
            "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0,
            "rope_scaling": None,
            "max_position_embeddings": header.context,
            "vocab_size": header.vocab_size,
            "tie_word_embeddings": header.vocab > 0,
            "attention_bias": False,
            "mlp_bias": False,
        }
        return StoredCheckpoint(
            format="llama2c",
            path=path,
            files=files,
            stored=rename_and_split(tensors, header.heads, header.kv_heads, path),
            config=config,
            generation={"eos_token_id": STORY_ENDS},
            tokenizer=llama2c_tokenizer(path.parent, header.vocab_size),
        )


def _read_header(file: WeightFile) -> _Header:
    start = file.read(0, HEADER.size)
    if start.startswith(VERSIONED_MAGIC):
        raise CheckpointError(
            f"{file.path} is in one of llama2.c's newer layouts",
            "Export it again with --version 0, or give the .pt file of the training",
        )
    header = _Header(*HEADER.unpack(start)) if len(start) == HEADER.size else None
    if header is None or not header.is_plausible():
        raise CheckpointError(
            f"{file.path} does not start with the header of a llama2.c model",
            "Give a .bin file of llama2.c, a .gguf file or a checkpoint folder",
        )
    if header.file_size() != file.size:
        raise CheckpointError(
            f"{file.path} has {file.size} bytes where its header asks for {header.file_size()}",
            "The file is damaged or not fully downloaded: fetch it again",
        )
    return header
