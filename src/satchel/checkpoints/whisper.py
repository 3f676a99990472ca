"""Whisper's own checkpoints: openai-whisper's .pt files and whisper.cpp's ggml files."""

from __future__ import annotations

import importlib.util
import math
import struct
from pathlib import Path
from typing import Any

from satchel.checkpoints.base import Checkpoint, TokenizerSource
from satchel.checkpoints.gguf_decoding import gguf_codecs, gguf_type_name
from satchel.checkpoints.stored import StoredCheckpoint, StoredTensor
from satchel.checkpoints.torch_file import TorchArchive
from satchel.checkpoints.torch_pickle import TorchTensor
from satchel.checkpoints.weightfile import WeightFile, open_files
from satchel.checkpoints.whisper_names import huggingface_name, whisper_config
from satchel.errors import CheckpointError

GGML_MAGIC = b"lmgg"  # "ggml" as a number, the lowest byte first
MULTILINGUAL = 51865  # from this size of the vocabulary on
_RANKS = ("gpt2.tiktoken", "multilingual.tiktoken")  # English, and all languages
_GGML_SIZES = (
    *("n_vocab", "n_audio_ctx", "n_audio_state", "n_audio_head", "n_audio_layer", "n_text_ctx"),
    *("n_text_state", "n_text_head", "n_text_layer", "n_mels", "ftype"),
)
_MOST_TOKENS, _MOST_TOKEN_BYTES, _MOST_NAME = 1 << 20, 1 << 12, 256
_DAMAGED = "The file is damaged: fetch it again"


def is_whisper_archive(value: Any) -> bool:
    """Whether this is what openai-whisper saves with torch."""
    return isinstance(value, dict) and {"dims", "model_state_dict"} <= set(value)


def open_whisper_pt(path: Path, archive: TorchArchive, files: list[WeightFile]) -> Checkpoint:
    """A .pt file of openai-whisper, which has no tokenizer in it: see :func:`ranks_of`."""
    dims = archive.value["dims"]
    config = whisper_config(dims if isinstance(dims, dict) else {}, path)
    tensors = archive.value["model_state_dict"]
    if not isinstance(tensors, dict):
        raise CheckpointError(f"{path} does not hold tensors by name", _DAMAGED)
    return StoredCheckpoint(
        format="openai-whisper",
        path=path,
        files=files,
        stored={
            huggingface_name(str(name)): archive.readable(str(name), tensor)
            for name, tensor in tensors.items()
            if isinstance(tensor, TorchTensor)
        },
        config=config,
        generation={},
        tokenizer=ranks_of(path.parent, config["vocab_size"]),
    )


def ranks_of(folder: Path, vocab_size: int) -> TokenizerSource | None:
    """The tokenizer of a vocabulary: beside the weights, or of the package openai-whisper."""
    name = _RANKS[vocab_size >= MULTILINGUAL]
    places = [folder / name]
    package = importlib.util.find_spec("whisper")  # found, and not imported: it would load torch
    for place in (package.submodule_search_locations or ()) if package else ():
        places.append(Path(place) / "assets" / name)
    found = next((place for place in places if place.is_file()), None)
    return TokenizerSource("whisper", found, {"vocab_size": vocab_size}) if found else None


def open_whisper_ggml(path: Path) -> Checkpoint:
    """A ggml file of whisper.cpp: sizes, mel filters, vocabulary, tensors."""
    with open_files(path) as files:
        reader = _Reader(files[0])
        sizes = dict(zip(_GGML_SIZES, reader.numbers(len(_GGML_SIZES)), strict=True))
        config = whisper_config(sizes, path)
        mels, bins = reader.numbers(2)
        if not (0 < mels <= 1024 and 0 < bins <= 1 << 16):
            raise reader.damaged(f"{mels} mel filters over {bins} frequencies")
        reader.at += 4 * mels * bins  # they follow from their number
        tokens = reader.tokens(reader.number())
        stored = {}
        while reader.at < files[0].size:
            name, tensor = reader.tensor()
            stored[huggingface_name(name)] = tensor
        return StoredCheckpoint(
            format="ggml",
            path=path,
            files=files,
            stored=stored,
            config=config,
            generation={},
            tokenizer=TokenizerSource(
                "whisper", path, {"tokens": tokens, "vocab_size": config["vocab_size"]}
            ),
        )


class _Reader:
    """Reads one value after the other, and never more than the file has."""

    def __init__(self, file: WeightFile) -> None:
        self.file = file
        self.at = len(GGML_MAGIC)

    def damaged(self, what: str) -> CheckpointError:
        return CheckpointError(f"{self.file.path}, byte {self.at}: {what}", _DAMAGED)

    def take(self, count: int) -> bytes:
        data = self.file.read(self.at, count)
        if len(data) < count:
            raise self.damaged("the file ends too early")
        self.at += count
        return data

    def numbers(self, count: int) -> tuple[int, ...]:
        return struct.unpack(f"<{count}i", self.take(4 * count))

    def number(self) -> int:
        return self.numbers(1)[0]

    def tokens(self, count: int) -> list[bytes]:
        if not 0 <= count <= _MOST_TOKENS:
            raise self.damaged(f"a vocabulary of {count} tokens")
        tokens = []
        for _ in range(count):
            length = self.number()
            if not 0 <= length <= _MOST_TOKEN_BYTES:
                raise self.damaged(f"a token of {length} bytes")
            tokens.append(self.take(length))
        return tokens

    def tensor(self) -> tuple[str, StoredTensor]:
        rank, length, kind = self.numbers(3)
        if not (1 <= rank <= 4 and 0 < length <= _MOST_NAME):
            raise self.damaged(f"a tensor of rank {rank} with a name of {length} bytes")
        shape = self.numbers(rank)[::-1]
        if min(shape) < 1 or max(shape) > 1 << 31:
            raise self.damaged(f"a tensor of the shape {list(shape)}")
        name = self.take(length).decode("utf-8", "replace")
        codec = gguf_codecs().get(kind)
        if codec is None:
            raise CheckpointError(
                f"{self.file.path}: tensor {name} has the type {gguf_type_name(kind)}, which is "
                "not read",
                "Use a file in f32, f16, q8_0, q5_1, q5_0, q4_1 or q4_0",
            )
        if name.endswith(".bias"):  # those of convolutions are columns
            shape = (math.prod(shape),)
        tensor = StoredTensor(self.file, self.at, shape, codec.name, codec)
        self.at += tensor.nbytes
        if self.at > self.file.size or tensor.columns % codec.block:
            raise self.damaged(f"tensor {name} of the shape {list(shape)} is cut off")
        return name, tensor
