"""Finding out what kind of checkpoint a path is."""

from __future__ import annotations

import os
from pathlib import Path

from satchel.checkpoints.base import Checkpoint
from satchel.checkpoints.gguf_file import open_gguf
from satchel.checkpoints.gguf_header import MAGIC
from satchel.checkpoints.huggingface import (
    is_huggingface_folder,
    open_huggingface,
    open_safetensors_file,
)
from satchel.checkpoints.llama2c import is_llama2c_file, open_llama2c
from satchel.checkpoints.meta import is_meta_folder, open_meta, open_pth
from satchel.checkpoints.mistaken import mistaken
from satchel.checkpoints.tokenizer_files import tokenizer_at
from satchel.checkpoints.whisper import GGML_MAGIC, open_whisper_ggml
from satchel.errors import CheckpointError, blaming
from satchel.files import open_regular

ACCEPTED = (
    "A checkpoint is a Hugging Face folder (config.json and safetensors), a .gguf file, a folder "
    "of Meta's (consolidated.00.pth and params.json), a .bin file of llama2.c, or Whisper's .pt "
    "or ggml file"
)


def open_checkpoint(
    path: str | os.PathLike[str],
    params: str | os.PathLike[str] | None = None,
    tokenizer: str | os.PathLike[str] | None = None,
) -> Checkpoint:
    """Open a checkpoint, whatever its format; nothing but headers is read.

    ``params`` (params.json or config.json) and ``tokenizer`` are for files that do not lie beside
    the weights.

    >>> with open_checkpoint("tiny-llama") as checkpoint:
    ...     checkpoint.config["hidden_size"]
    64
    """
    path = Path(path).expanduser()
    advice = "The checkpoint is damaged or hostile: fetch it again, from a source that you trust."
    with blaming(CheckpointError, f"{path} holds a value of the wrong kind", advice):
        if not path.exists():
            raise CheckpointError(
                f"{path} does not exist", "Give a file or a folder, or a model's name"
            )
        settings = None if params is None else Path(params).expanduser()
        try:
            opened = (_open_folder if path.is_dir() else _open_file)(path, settings)
        except CheckpointError as error:
            if told := mistaken(path):
                raise told from error
            raise
        if tokenizer is not None:
            opened.tokenizer = tokenizer_at(Path(tokenizer).expanduser())
        return opened


def _open_folder(folder: Path, params: Path | None) -> Checkpoint:
    if is_huggingface_folder(folder):
        return open_huggingface(folder, params)
    if is_meta_folder(folder):
        return open_meta(folder, params)
    found = sorted(folder.glob("*.gguf"))
    found += sorted(path for path in folder.glob("*.bin") if is_llama2c_file(path))
    if len(found) == 1:
        return _open_file(found[0], params)
    if found:
        names = ", ".join(path.name for path in found)
        raise CheckpointError(
            f"{folder} has several checkpoints in it: {names}", "Give the path of one of them"
        )
    raise CheckpointError(f"{folder} has no checkpoint in it", ACCEPTED)


def _open_file(path: Path, params: Path | None) -> Checkpoint:
    """By the content; the name only decides where the content says nothing."""
    try:
        with open(path, "rb", opener=open_regular) as file:
            start = file.read(9)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be opened: {error.strerror}", ACCEPTED) from error
    if start.startswith(MAGIC) or path.suffix == ".gguf":
        _has_its_own(path, params)
        return open_gguf(path)
    if start.startswith(GGML_MAGIC):
        _has_its_own(path, params)
        return open_whisper_ggml(path)
    if path.suffix == ".safetensors" or (start[8:] == b"{" and path.suffix != ".bin"):
        return open_safetensors_file(path, params)
    if start.startswith(b"PK\x03\x04") or path.suffix in (".pth", ".pt"):
        if (path.parent / "config.json").is_file() and path.name == "pytorch_model.bin":
            return open_huggingface(path.parent, params)
        return open_pth(path, params)
    if path.suffix == ".bin":
        _has_its_own(path, params)
        return open_llama2c(path)
    raise CheckpointError(f"{path} is not a checkpoint in a known format", ACCEPTED)


def _has_its_own(path: Path, params: Path | None) -> None:
    if params is not None:
        raise CheckpointError(
            f"{path} has its configuration in itself, and {params} was given", "Leave out --params"
        )
