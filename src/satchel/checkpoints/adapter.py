"""LoRA adapters as PEFT stores them: adapter_config.json and adapter_model.safetensors."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from satchel.checkpoints.base import TensorInfo
from satchel.checkpoints.jsonfile import positive_int, read_json
from satchel.checkpoints.safetensors_file import read_header
from satchel.checkpoints.stored import StoredTensor
from satchel.checkpoints.torch_file import read_state_dict
from satchel.checkpoints.weightfile import WeightFile, open_files
from satchel.errors import CheckpointError
from satchel.patterns import Pattern

CONFIG = "adapter_config.json"
FILES = {"adapter_model.safetensors": read_header, "adapter_model.bin": read_state_dict}
_KEY = re.compile(r"base_model\.model\.(.+)\.lora_(A|B)(?:\.\w+)?\.weight")
# Fields that change what an adapter computes, and the only values that are understood.
_ONLY: dict[str, tuple[Any, ...]] = {
    "bias": (None, "none"),
    "modules_to_save": (None, []),
    "use_dora": (None, False),
    "fan_in_fan_out": (None, False),
    "layer_replication": (None,),
    "lora_bias": (None, False),
    "use_qalora": (None, False),
    "trainable_token_indices": (None,),
    "target_parameters": (None, []),
}


@dataclass(frozen=True)
class LowRank:
    """What is added to one weight: ``scale * b @ a``, with a [rank, in] and b [out, rank]."""

    a: StoredTensor
    b: StoredTensor
    scale: float

    @property
    def rank(self) -> int:
        return self.a.shape[0]


@dataclass(frozen=True)
class LoraAdapter:
    """An adapter, by the tensors of the model that it changes; nothing but headers was read."""

    path: Path
    base: str  # the model that it says it was made for; may be empty
    parts: Mapping[str, LowRank]  # by the name of the weight's tensor
    file: WeightFile

    def check_fits(self, tensors: Mapping[str, TensorInfo], base: str = "") -> None:
        """An adapter of another model is an error; ``base`` is the model's repository, if known."""
        if base and "/" in self.base and not Path(self.base).exists():
            mine, theirs = (name.split("/")[-1].lower() for name in (self.base, base))
            if mine != theirs:
                raise CheckpointError(
                    f"the adapter {self.path} was made for {self.base}, and this is {base}",
                    "Take the model that it was made for.",
                )
        for name, part in self.parts.items():
            shape = (part.b.shape[0], part.a.shape[1])
            found = tensors.get(name)
            if found is None or found.shape != shape:
                has = "has none" if found is None else f"has {list(found.shape)}"
                raise CheckpointError(
                    f"the adapter {self.path} changes {name} of shape {list(shape)}, and the model "
                    f"{has}",
                    f"It was made for {self.base}." if self.base else "It is of another model.",
                )


def open_adapter(folder: str | Path) -> LoraAdapter:
    """Open a folder of PEFT's."""
    folder = Path(folder).expanduser()
    if not folder.is_dir():
        raise CheckpointError(f"{folder} is not a folder", f"Give one with {CONFIG} in it.")
    config = read_json(folder / CONFIG)
    if config.get("peft_type") != "LORA":
        raise CheckpointError(
            f"{folder / CONFIG}: the adapter is of type {config.get('peft_type')!r}, not LORA",
            "Only LoRA adapters are read.",
        )
    for field, allowed in _ONLY.items():
        if config.get(field) not in allowed:
            raise CheckpointError(
                f"{folder / CONFIG}: {field} is {config[field]!r}, which is not supported",
                "Merge the adapter with PEFT and export the result.",
            )
    name = next((name for name in FILES if (folder / name).is_file()), None)
    if name is None:
        raise CheckpointError(f"{folder} lacks {next(iter(FILES))}", "Fetch the adapter again")
    with open_files(folder / name) as files:
        parts = _parts(FILES[name](files[0]), config, folder)
        return LoraAdapter(
            folder, str(config.get("base_model_name_or_path") or ""), parts, files[0]
        )


def _parts(
    tensors: Mapping[str, StoredTensor], config: dict[str, Any], folder: Path
) -> dict[str, LowRank]:
    found: dict[str, dict[str, StoredTensor]] = {}
    for key, tensor in tensors.items():
        match = _KEY.fullmatch(key)
        if not match or len(tensor.shape) != 2 or tensor.codec is None:
            raise CheckpointError(
                f"{folder}: tensor {key} is not a part of a linear layer's adapter",
                "Merge the adapter with PEFT and export the result.",
            )
        found.setdefault(match[1], {})[match[2]] = tensor
    parts = {}
    for module, pair in found.items():
        if len(pair) != 2 or pair["A"].shape[0] != pair["B"].shape[1]:
            raise CheckpointError(
                f"{folder}: lora_A and lora_B of {module} do not fit together",
                "The adapter is damaged: fetch it again",
            )
        rank, scale = _rank_and_scale(module, config, folder)
        if pair["A"].shape[0] != rank:
            raise CheckpointError(
                f"{folder}: {module} has the rank {pair['A'].shape[0]}, and {CONFIG} says {rank}",
                "The configuration is of another adapter",
            )
        parts[f"{module}.weight"] = LowRank(pair["A"], pair["B"], scale)
    if not parts:
        raise CheckpointError(f"{folder} has no tensors in it", "Fetch the adapter again")
    return parts


def _rank_and_scale(module: str, config: dict[str, Any], folder: Path) -> tuple[int, float]:
    values = {
        "r": _by_pattern(module, config, "rank_pattern", folder) or config.get("r"),
        "lora_alpha": _by_pattern(module, config, "alpha_pattern", folder),
    }
    rank = positive_int(values, "r", folder / CONFIG)
    alpha = config.get("lora_alpha", 8) if values["lora_alpha"] is None else values["lora_alpha"]
    if isinstance(alpha, bool) or not isinstance(alpha, (int, float)) or not abs(alpha) < 1e30:
        raise CheckpointError(
            f"{folder / CONFIG}: lora_alpha is {alpha!r}, not a number", "Fetch the file again"
        )
    return rank, float(alpha) / (math.sqrt(rank) if config.get("use_rslora") else rank)


def _by_pattern(module: str, config: dict[str, Any], field: str, folder: Path) -> Any:
    """What the first pattern that matches the module, or the end of its name, gives it."""
    patterns = config.get(field) or {}
    if not isinstance(patterns, dict):
        raise CheckpointError(
            f"{folder / CONFIG}: {field} is not an object", "Fetch the file again"
        )
    for source, value in patterns.items():
        try:
            if _pattern(source).matches(module):
                return value
        except ValueError as error:
            raise CheckpointError(
                f"{folder / CONFIG}: {field} is not usable: {error}", "Fetch the file again"
            ) from None
    return None


@lru_cache(maxsize=1024)
def _pattern(source: str) -> Pattern:
    return Pattern(rf"(.*\.)?({source})")
