"""Hugging Face folders: config.json with safetensors (or pytorch_model.bin), whole or sharded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from satchel.checkpoints.base import Checkpoint
from satchel.checkpoints.experts import joined_experts
from satchel.checkpoints.gptq import PackedForm
from satchel.checkpoints.jsonfile import read_json, read_json_if_there
from satchel.checkpoints.safetensors_file import read_header
from satchel.checkpoints.stored import StoredCheckpoint, StoredTensor
from satchel.checkpoints.tokenizer_files import tokenizer_in_folder
from satchel.checkpoints.torch_file import read_state_dict
from satchel.checkpoints.weightfile import WeightFile, open_files
from satchel.errors import CheckpointError

ReadTensors = Callable[[WeightFile], dict[str, StoredTensor]]

# (format, whole file, index of shards, how a file's tensors are found), the better one first
LAYOUTS: tuple[tuple[str, str, str, ReadTensors], ...] = (
    ("safetensors", "model.safetensors", "model.safetensors.index.json", read_header),
    ("pytorch", "pytorch_model.bin", "pytorch_model.bin.index.json", read_state_dict),
)


GENERATION_FIELDS = (
    "bos_token_id",
    "eos_token_id",
    "do_sample",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
)


def is_huggingface_folder(folder: Path) -> bool:
    """Whether the folder has weights in one of Hugging Face's layouts."""
    return _one_safetensors(folder) is not None or any(
        (folder / name).is_file() for _, whole, index, _ in LAYOUTS for name in (whole, index)
    )


def open_huggingface(folder: Path, config: Path | None = None) -> Checkpoint:
    """Open a Hugging Face folder; ``config`` if its config.json is another file."""
    for format, whole, index, read_tensors in LAYOUTS:
        if (folder / whole).is_file():
            return _open(folder, format, {folder / whole: None}, read_tensors, config)
        if (folder / index).is_file():
            return _open(folder, format, _shards(folder / index), read_tensors, config)
    if (single := _one_safetensors(folder)) is not None:
        return open_safetensors_file(single, config)
    raise CheckpointError(f"{folder} has no weights in it", "Fetch the whole checkpoint again")


def open_safetensors_file(path: Path, config: Path | None = None) -> Checkpoint:
    """Open one .safetensors file, with the config.json beside it."""
    return _open(path.parent, "safetensors", {path: None}, read_header, config)


def _one_safetensors(folder: Path) -> Path | None:
    found = sorted(path for path in folder.glob("*.safetensors") if path.is_file())
    return found[0] if len(found) == 1 else None


def _open(
    folder: Path,
    format: str,
    wanted: dict[Path, list[str] | None],
    read_tensors: ReadTensors,
    config_path: Path | None,
) -> Checkpoint:
    config = _read_config(config_path or folder / "config.json")
    quantization = _take_quantization(config, folder)
    form = PackedForm.read(quantization, folder) if quantization else None
    generation = read_json_if_there(folder / "generation_config.json") or _generation(config)
    stored: dict[str, StoredTensor] = {}
    missing = []
    with open_files(*wanted) as files:
        for file in files:
            tensors = read_tensors(file)
            names = wanted[file.path]
            for name in tensors if names is None else names:
                if name in tensors:
                    stored[name] = tensors[name]
                else:
                    missing.append(f"{name} (in {file.path.name})")
        if missing:
            raise CheckpointError(
                f"{folder} lacks tensors that its index names: {', '.join(missing)}",
                "Index and shards are not of one checkpoint: fetch it again",
            )
        stored = _whole_names(stored)
        return StoredCheckpoint(
            format=format,
            path=folder,
            files=files,
            stored=joined_experts(form.unpacked(stored, folder) if form else stored, folder),
            config=config,
            generation=generation,
            tokenizer=tokenizer_in_folder(folder),
            quantized_by=form.method if form else "",
        )


# What stands before the names of a whole model, and an embedding by which one without is known.
_EMBEDDINGS = (
    ("model.", "embed_tokens.weight"),
    ("transformer.", "wte.weight"),
    ("gpt_neox.", "embed_in.weight"),
)


def _whole_names(stored: dict[str, StoredTensor]) -> dict[str, StoredTensor]:
    """Names as the whole model has them, of a base model that was saved without its head."""
    for prefix, embedding in _EMBEDDINGS:
        if embedding in stored and not any(name.startswith(prefix) for name in stored):
            return {f"{prefix}{name}": tensor for name, tensor in stored.items()}
    return stored


# Where older tools said what config.json says today, and which they were.
_OLDER_QUANTIZATION = (("quantize_config.json", "gptq"), ("quant_config.json", "awq"))


def _take_quantization(config: dict[str, Any], folder: Path) -> dict[str, Any] | None:
    """How a checkpoint was quantised, by whichever place tells it; none for one that was not."""
    said: dict[str, Any] | None = config.pop("quantization_config", None)
    if config.pop("quantization", None):  # MLX's own field; it repeats it in the usual one
        return {"quant_method": "mlx"} | (said or {})
    for name, method in () if said else _OLDER_QUANTIZATION:
        beside = read_json_if_there(folder / name)
        if beside:
            return {"quant_method": method} | beside
    return said


def _generation(config: dict[str, Any]) -> dict[str, Any]:
    """How text is made, from the configuration: older checkpoints have no file for it."""
    return {name: config[name] for name in GENERATION_FIELDS if config.get(name) is not None}


def _read_config(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise CheckpointError(
            f"{path.parent} has weights but no {path.name}",
            f"Put the model's {path.name} beside them, or give it with --params",
        )
    config = read_json(path)
    if not isinstance(config.get("model_type"), str):
        raise CheckpointError(
            f"{path}: field model_type is missing", "Use the config.json that came with the weights"
        )
    if not isinstance(config.get("quantization_config") or {}, dict):
        raise CheckpointError(
            f"{path}: field quantization_config is not an object", "Fetch the file again"
        )
    return config


def _shards(index: Path) -> dict[Path, list[str] | None]:
    """The shard files of an index, each with the tensors that are to be in it."""
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{index}: field weight_map is missing", "Fetch the file again")
    shards: dict[Path, list[str] | None] = {}
    for name, shard in weight_map.items():
        # An index names files beside it, and never leads out of the folder.
        if not isinstance(shard, str) or Path(shard).name != shard:
            raise CheckpointError(
                f"{index}: tensor {name} is in {shard!r}, which is not a file name",
                "Fetch the checkpoint again, from a source that you trust",
            )
        names = shards.setdefault(index.parent / shard, [])
        assert names is not None
        names.append(name)
    missing = sorted(path.name for path in shards if not path.is_file())
    if missing:
        raise CheckpointError(
            f"{index.parent} lacks shards that its index names: {', '.join(missing)}",
            "Fetch the missing files",
        )
    return shards
