"""Meta's Llama checkpoints (consolidated.00.pth with params.json) and llama2.c's training files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from satchel.checkpoints.base import Checkpoint
from satchel.checkpoints.jsonfile import positive_int, read_json
from satchel.checkpoints.meta_names import is_part, rename_and_split
from satchel.checkpoints.meta_quantized import (
    Int8Tensor,
    check_arguments,
    is_quantized,
    join_scales,
    lora_branches,
    rotated_tensors,
)
from satchel.checkpoints.stored import ReadableTensor, StoredCheckpoint, StoredTensor
from satchel.checkpoints.tokenizer_files import llama2c_tokenizer, tokenizer_in_folder
from satchel.checkpoints.torch_file import TorchArchive, state_dict_tensors
from satchel.checkpoints.weightfile import open_files
from satchel.errors import CheckpointError

FIRST_SHARD = "consolidated.00.pth"
COMPARE_BYTES = 1 << 20
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"

# params.json does not say the scaling factor of Llama 3's long context: 32 in Llama 3.2's text
# models, known by their hidden size (1B, 3B), and 8 in Llama 3.1.
LLAMA3_2_HIDDEN_SIZES = {2048, 3072}


def is_meta_folder(folder: Path) -> bool:
    """Whether the folder holds a checkpoint in Meta's own format."""
    return (folder / FIRST_SHARD).is_file()


def open_meta(folder: Path) -> Checkpoint:
    """Open a folder of consolidated.00.pth and params.json."""
    shards = sorted(path.name for path in folder.glob("consolidated.*.pth"))
    if len(shards) > 1:
        raise CheckpointError(
            f"{folder} is split over {len(shards)} files ({shards[0]} … {shards[-1]}), and only "
            "single-file checkpoints of Meta's are read",
            "Use the Hugging Face form of this model (hf:ORG/REPO)",
        )
    params = read_json(folder / "params.json")
    return open_torch_llama(folder / FIRST_SHARD, params, folder / "params.json")


def open_pth(path: Path) -> Checkpoint:
    """Open one file of torch.save: Meta's .pth beside its params.json, or llama2.c's .pt."""
    if (path.parent / "params.json").is_file():
        if path.name.startswith("consolidated."):
            return open_meta(path.parent)
        params = path.parent / "params.json"
        return open_torch_llama(path, read_json(params), params)
    return open_torch_llama(path, None, path)


def open_torch_llama(path: Path, params: dict[str, Any] | None, params_path: Path) -> Checkpoint:
    """Open Llama weights; ``params`` None means a training file that carries its own."""
    with open_files(path) as files:
        archive = TorchArchive(files[0])
        state, trained = archive.value, params is None
        if params is None:
            params, state = _training_parts(archive)
        tensors = state_dict_tensors(archive, state)
        heads = positive_int(params, "n_heads", params_path)
        kv_heads = heads
        if params.get("n_kv_heads") is not None:
            kv_heads = positive_int(params, "n_kv_heads", params_path)
        renamed = rename_and_split(tensors, heads, kv_heads, path)
        parts = {name: renamed.pop(name) for name in list(renamed) if is_part(name)}
        stored: dict[str, ReadableTensor] = dict(renamed)
        branches: dict[str, tuple[str, str]] = {}
        if quantized := is_quantized(params, parts):
            check_arguments(params, params_path)
            stored = join_scales(renamed, parts, path)
            adaptors, branches = lora_branches(parts, params, path)
        tied = _is_tied(stored.get(EMBEDDING), stored.get(HEAD))
        if tied:
            stored.pop(HEAD, None)
        config = _config(params, stored, heads, kv_heads, params_path)
        config["tie_word_embeddings"] = tied
        if quantized:
            stored |= adaptors
        if trained:
            tokenizer = llama2c_tokenizer(path.parent, config["vocab_size"])
        else:
            tokenizer = tokenizer_in_folder(path.parent)
        return StoredCheckpoint(
            format="llama2c" if trained else "meta",
            path=path if trained else path.parent,
            files=files,
            stored=stored,
            config=config,
            generation={},
            tokenizer=tokenizer,
            quantized_by="8da4w" if quantized else "",
            branches=branches,
            rotated=rotated_tensors(params, stored),
        )


def _training_parts(archive: TorchArchive) -> tuple[dict[str, Any], dict[str, Any]]:
    value = archive.value
    if isinstance(value, dict):
        args, state = value.get("model_args"), value.get("model")
        if isinstance(args, dict) and isinstance(state, dict):
            return args, state
    raise CheckpointError(
        f"{archive.file.path} has neither a params.json beside it nor model_args in it",
        "Put the params.json that came with the weights beside them",
    )


def _is_tied(embedding: ReadableTensor | None, head: ReadableTensor | None) -> bool:
    """Whether the output head is the embedding. Meta stores Llama 3.2's twice, byte for byte."""
    if embedding is None or head is None:
        return True
    if isinstance(embedding, Int8Tensor) and isinstance(head, Int8Tensor):
        return _same(embedding.codes, head.codes) and _same(embedding.scales, head.scales)
    return (
        isinstance(embedding, StoredTensor)
        and isinstance(head, StoredTensor)
        and _same(embedding, head)
    )


def _same(embedding: StoredTensor, head: StoredTensor) -> bool:
    if (embedding.shape, embedding.dtype) != (head.shape, head.dtype):
        return False
    if embedding.offset == head.offset:
        return True
    for done in range(0, embedding.nbytes, COMPARE_BYTES):
        count = min(COMPARE_BYTES, embedding.nbytes - done)
        if embedding.file.read(embedding.offset + done, count) != head.file.read(
            head.offset + done, count
        ):
            return False
    return True


def _config(
    params: dict[str, Any],
    stored: Mapping[str, ReadableTensor],
    heads: int,
    kv_heads: int,
    where: Path,
) -> dict[str, Any]:
    hidden = positive_int(params, "dim", where)
    vocab_size = _shape(stored, EMBEDDING, where)[0]
    declared = params.get("vocab_size", -1)
    if declared not in (None, -1, vocab_size):
        raise CheckpointError(
            f"{where}: field vocab_size is {declared}, but the embedding has {vocab_size} rows",
            "The configuration does not belong to these weights",
        )
    scaled = bool(params.get("use_scaled_rope", False))
    theta = float(params.get("rope_theta", 10000.0))
    config: dict[str, Any] = {
        "model_type": "llama",
        "hidden_size": hidden,
        # multiple_of and ffn_dim_multiplier only serve to compute this.
        "intermediate_size": _shape(stored, "model.layers.0.mlp.gate_proj.weight", where)[0],
        "num_hidden_layers": positive_int(params, "n_layers", where),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": hidden // heads,
        "hidden_act": "silu",
        "rms_norm_eps": float(params.get("norm_eps", 1e-5)),
        "rope_theta": theta,
        "rope_scaling": None,
        "max_position_embeddings": _context(params, scaled, theta),
        "vocab_size": vocab_size,
        "attention_bias": False,
        "mlp_bias": False,
    }
    if scaled:
        factor = 32.0 if hidden in LLAMA3_2_HIDDEN_SIZES else 8.0
        config["rope_scaling"] = {
            "rope_type": "llama3",
            "factor": float(params.get("rope_scaling_factor") or factor),
            "low_freq_factor": 1.0,
            "high_freq_factor": float(params.get("rope_high_freq_factor") or 4.0),
            "original_max_position_embeddings": 8192,
        }
    return config


def _context(params: dict[str, Any], scaled: bool, theta: float) -> int:
    """The context of the Llama generation, which params.json of Meta's leaves out."""
    if isinstance(length := params.get("max_seq_len"), int):
        return length
    if scaled:
        return 131072  # Llama 3.1 and later
    return 8192 if theta == 500000.0 else 4096  # Llama 3, Llama 2


def _shape(stored: Mapping[str, ReadableTensor], name: str, where: Path) -> tuple[int, ...]:
    tensor = stored.get(name)
    if tensor is None or len(tensor.shape) != 2:
        raise CheckpointError(
            f"{where.parent} has no weights of two dimensions under the name {name}",
            "Fetch the checkpoint again",
        )
    return tensor.shape
