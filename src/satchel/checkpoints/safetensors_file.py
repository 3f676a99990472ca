"""The header of one safetensors file."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from satchel.checkpoints.decoding import FLOATS
from satchel.checkpoints.stored import StoredTensor
from satchel.checkpoints.weightfile import WeightFile
from satchel.errors import CheckpointError


def read_header(file: WeightFile) -> dict[str, StoredTensor]:
    """All tensors of a safetensors file, without reading their data.

    The safetensors library checks the header (sizes, offsets, no gaps, nothing after the end).
    It does not hand out offsets, and would map the data, so these are taken from the JSON.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file.path, framework="numpy"):
            pass
    except (SafetensorError, OSError) as error:
        raise CheckpointError(
            f"{file.path} is not a valid safetensors file: {error}",
            "The file is damaged or not fully downloaded: fetch it again",
        ) from error
    length = int.from_bytes(file.read(0, 8), "little")
    try:
        header = json.loads(file.read(8, length), object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{file.path} has a header that cannot be read: {error}", "Fetch the file again"
        ) from error
    header.pop("__metadata__", None)
    data = 8 + length
    tensors = {}
    for name, entry in header.items():
        dtype = str(entry["dtype"]).lower()
        tensors[name] = StoredTensor(
            file,
            data + int(entry["data_offsets"][0]),
            tuple(int(size) for size in entry["shape"]),
            dtype,
            FLOATS.get(dtype),
        )
    return tensors


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        (twice, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"{twice} is in it twice")
    return result
