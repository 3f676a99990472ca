"""GGUF files: weights, configuration and tokenizer in one."""

from __future__ import annotations

import math
from pathlib import Path

from satchel.checkpoints.base import Checkpoint, TokenizerSource
from satchel.checkpoints.experts import joined_experts
from satchel.checkpoints.gguf_config import GgufFacts, config_from_gguf, generation_from_gguf
from satchel.checkpoints.gguf_decoding import gguf_codecs, gguf_type_name
from satchel.checkpoints.gguf_header import GgufHeader, read_gguf_header
from satchel.checkpoints.gguf_names import (
    ARCHITECTURES,
    DERIVED,
    GgufArchitecture,
    huggingface_name,
)
from satchel.checkpoints.stored import ReadableTensor, StoredCheckpoint, StoredTensor
from satchel.checkpoints.weightfile import WeightFile, open_files
from satchel.errors import CheckpointError


def open_gguf(path: Path) -> Checkpoint:
    """Open a GGUF file."""
    with open_files(path) as files:
        header = read_gguf_header(files[0])
        architecture = _architecture(header, path)
        tensors = _tensors(files[0], header)
        facts = GgufFacts(
            path,
            header.metadata,
            {name: tensor.shape for name, tensor in tensors.items()},
            lambda name: tensors[name].read(name),
        )
        config = config_from_gguf(facts)
        heads = {"q": config["num_attention_heads"], "k": config["num_key_value_heads"]}
        return StoredCheckpoint(
            format="gguf",
            path=path,
            files=files,
            stored=_renamed(tensors, architecture, heads, path),
            config=config,
            generation=generation_from_gguf(header.metadata),
            tokenizer=_tokenizer(header, path),
        )


def _architecture(header: GgufHeader, path: Path) -> GgufArchitecture:
    if header.metadata.get("split.count", 1) not in (0, 1):
        raise CheckpointError(
            f"{path} is one of {header.metadata['split.count']} parts",
            "Join them into one file first (gguf-split --merge)",
        )
    name = header.metadata.get("general.architecture")
    if name is None:
        raise CheckpointError(
            f"{path}: key general.architecture is missing", "Use a GGUF file of a language model"
        )
    if name not in ARCHITECTURES:
        raise CheckpointError(
            f"{path} is of architecture {name!r}, which is not read from GGUF",
            f"Readable are {', '.join(sorted(ARCHITECTURES))}",
        )
    return ARCHITECTURES[name]


def _tensors(file: WeightFile, header: GgufHeader) -> dict[str, StoredTensor]:
    """All tensors under GGUF's names, checked against the file's size."""
    codecs = gguf_codecs()
    tensors = {}
    for name, described in header.tensors.items():
        codec = codecs.get(described.type)
        if codec is None:
            raise CheckpointError(
                f"{file.path}: tensor {name} has the type {gguf_type_name(described.type)}, which "
                "is not supported",
                "Use a file in F16, BF16, Q8_0, Q6_K, Q5_K, Q4_K or another of the usual types",
            )
        if described.shape[-1] % codec.block:
            raise CheckpointError(
                f"{file.path}: tensor {name} has rows of {described.shape[-1]} values, which do "
                f"not fill blocks of {codec.block} ({codec.name})",
                "The file is damaged: fetch it again",
            )
        end = header.data_offset + described.offset
        end += codec.row_bytes(math.prod(described.shape))
        if end > file.size:
            raise CheckpointError(
                f"{file.path}: tensor {name} ends at byte {end}, but the file has {file.size}",
                "The file is cut off or damaged: fetch it again",
            )
        offset = header.data_offset + described.offset
        tensors[name] = StoredTensor(file, offset, described.shape, codec.name, codec)
    return tensors


def read_gguf_tensors(file: WeightFile) -> dict[str, StoredTensor]:
    """All tensors of a file of any architecture, under the names that it has for them."""
    return _tensors(file, read_gguf_header(file))


def _renamed(
    tensors: dict[str, StoredTensor],
    architecture: GgufArchitecture,
    heads: dict[str, int],
    path: Path,
) -> dict[str, ReadableTensor]:
    """The tensors in Hugging Face's names and form."""
    renamed: dict[str, ReadableTensor] = {}
    for gguf_name, found in tensors.items():
        tensor = found
        if gguf_name in DERIVED:
            continue
        name = huggingface_name(gguf_name, architecture)
        if name is None:
            raise CheckpointError(
                f"{path}: tensor {gguf_name} has no place in a {architecture.model_type} model",
                "Use the Hugging Face form of this model",
            )
        if name in renamed:
            raise CheckpointError(f"{path}: tensor {name} is in it twice", "Fetch the file again")
        if architecture.interleaved:
            for projection, count in heads.items():
                if f".{projection}_proj." in name:
                    tensor = tensor.interleaved(gguf_name, count)
        if architecture.norm_offset and name.endswith("norm.weight"):
            tensor = tensor.shifted(-1.0)
        renamed[name] = tensor
    return joined_experts(renamed, path)


def _tokenizer(header: GgufHeader, path: Path) -> TokenizerSource | None:
    if "tokenizer.ggml.model" not in header.metadata:
        return None
    return TokenizerSource("gguf", path, header.metadata)
