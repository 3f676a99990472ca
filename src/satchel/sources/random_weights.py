"""Checkpoints of random weights with a real model's shapes, as sharded bf16 safetensors.

For all that is measured and does not depend on what a model says: ``random:llama3_2-1b`` is such a
source. Memory stays small whatever the model: a pool of random numbers is written over and over.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, models, pre_tokenizers
from tokenizers import decoders as token_decoders

from satchel.errors import DownloadError
from satchel.models import build_model
from satchel.sources.cache import checkpoints_folder, locked
from satchel.sources.shapes import SHAPES

PREFIX = "random:"
SHARD_BYTES = 2_000_000_000
# Tensors continue in the pool where the last one ended. An odd length sees to it that no two of
# them are alike, for exporters that store equal tensors once.
POOL = (1 << 23) - 9


def tensor_shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """What the checkpoint must hold: the tensors that the model's graph refers to."""
    shapes: dict[str, tuple[int, ...]] = {}
    for weight in build_model(config).method("kv_forward", 1, 16).weights():
        rows, *rest = weight.shape
        if weight.source.ranges is not None:
            rows = max(last for _, last in weight.source.ranges)
        known = shapes.get(weight.source.tensor, (0,))
        shapes[weight.source.tensor] = (max(rows, known[0]), *rest)
    return shapes


def random_pool(seed: int) -> NDArray[np.uint16]:
    """bf16 values of a normal distribution with the spread of trained weights."""
    values = np.random.default_rng(seed).standard_normal(POOL, np.float32) * np.float32(0.02)
    pool: NDArray[np.uint16] = (values.view(np.uint32) >> 16).astype(np.uint16)
    return pool


def write_shard(
    path: Path,
    tensors: dict[str, tuple[int, ...]],
    pool: NDArray[np.uint16] | None,
    position: int,
) -> int:
    """Returns where in the pool the next shard goes on. Without one, only the header is written."""
    header: dict[str, Any] = {}
    at = 0
    for name, shape in tensors.items():
        size = int(np.prod(shape)) * 2
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    document = json.dumps(header).encode()
    document += b" " * (-len(document) % 8)
    ones = np.full(1 << 20, 0x3F80, np.uint16)  # norms are near 1
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(document)) + document)
        if pool is None:
            file.truncate(8 + len(document) + at)
            return position
        for shape in tensors.values():
            left = int(np.prod(shape))
            if len(shape) == 1:
                file.write(ones[:left].tobytes())
                continue
            while left:
                part = pool[position : position + left]
                file.write(part.tobytes())
                left -= len(part)
                position = (position + len(part)) % POOL
    return position


def write_tokenizer(folder: Path) -> None:
    """Bytes as tokens: enough to run the model, whose text means nothing anyway."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate([*alphabet, "<s>", "</s>"])}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = token_decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"bos_token": "<s>", "eos_token": "</s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def write_tensors(
    folder: Path, shapes: Mapping[str, tuple[int, ...]], pool: NDArray[np.uint16] | None
) -> int:
    """Shards and their index; returns the bytes of all tensors."""
    folder.mkdir(parents=True, exist_ok=True)
    shards: list[dict[str, tuple[int, ...]]] = [{}]
    filled = total = 0
    for tensor, shape in shapes.items():
        size = int(np.prod(shape)) * 2
        if shards[-1] and filled + size > SHARD_BYTES:
            shards.append({})
            filled = 0
        shards[-1][tensor] = shape
        filled += size
        total += size
    places: dict[str, str] = {}
    position = 0
    for number, tensors in enumerate(shards, 1):
        file = f"model-{number:05}-of-{len(shards):05}.safetensors"
        position = write_shard(folder / file, tensors, pool, position)
        places |= dict.fromkeys(tensors, file)
    index = {"metadata": {"total_size": total}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return total


def write_checkpoint(
    name: str, folder: Path, layers: int | None = None, seed: int = 0, hollow: bool = False
) -> int:
    """Returns the bytes of all weights. A hollow checkpoint has all but these: enough to plan."""
    config = dict(SHAPES[name])
    if layers:
        config["num_hidden_layers"] = layers
    total = write_tensors(folder, tensor_shapes(config), None if hollow else random_pool(seed))
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    write_tokenizer(folder)
    return total


def random_checkpoint(source: str, hollow: bool = False) -> Path:
    """The folder of ``random:NAME``, written on first use and then kept in the cache.

    A hollow one will do where only a plan is made; it takes no room.

    >>> random_checkpoint("random:tiny-llama").name
    'random-tiny-llama'
    """
    name = source.removeprefix(PREFIX)
    if name not in SHAPES:
        raise DownloadError(f"there are no shapes of {name!r}", f"Known: {', '.join(SHAPES)}")
    folder = checkpoints_folder() / f"random-{name}"
    last = "tokenizer_config.json"
    if hollow and not (folder / last).exists():
        folder = checkpoints_folder() / f"hollow-{name}"
    if not (folder / last).exists():
        with locked(folder):
            if not (folder / last).exists():
                write_checkpoint(name, folder, hollow=hollow)
    return folder
