"""Meta's Llama checkpoints (consolidated.00.pth with params.json) and llama2.c's training files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from satchel.checkpoints.base import Checkpoint
from satchel.checkpoints.experts import RowRange, StackedTensor
from satchel.checkpoints.jsonfile import positive_int, read_json
from satchel.checkpoints.meta_config import EMBEDDING, read_config
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
from satchel.checkpoints.tokenizer_files import (
    STORY_ENDS,
    STORY_TOKENS,
    llama2c_tokenizer,
    tokenizer_in_folder,
)
from satchel.checkpoints.torch_file import TorchArchive, state_dict_tensors
from satchel.checkpoints.weightfile import open_files
from satchel.checkpoints.whisper import is_whisper_archive, open_whisper_pt
from satchel.errors import CheckpointError

FIRST_SHARD = "consolidated.00.pth"
COMPARE_BYTES = 1 << 20
HEAD = "lm_head.weight"
# Parts of one layer of Phi.
FUSED = {"qkv": ("q", "k", "v"), "gate_up": ("gate", "up")}
# Under which training scripts save the weights, and the sizes of the model.
WEIGHTS = ("model", "state_dict", "model_state_dict")
SIZES = ("model_args", "args", "model_config")


def is_meta_folder(folder: Path) -> bool:
    """Whether the folder holds a checkpoint in Meta's own format."""
    return (folder / FIRST_SHARD).is_file()


def open_meta(folder: Path, params: Path | None = None) -> Checkpoint:
    """Open a folder of consolidated.00.pth and params.json."""
    shards = sorted(path.name for path in folder.glob("consolidated.*.pth"))
    if len(shards) > 1:
        raise CheckpointError(
            f"{folder} is split over {len(shards)} files ({shards[0]} … {shards[-1]}), and only "
            "single-file checkpoints of Meta's are read",
            "Use the Hugging Face form of this model (hf:ORG/REPO)",
        )
    return open_pth(folder / FIRST_SHARD, params, sharded=False)


def open_pth(path: Path, params: Path | None = None, sharded: bool = True) -> Checkpoint:
    """Open one file of torch.save: Meta's .pth with its params.json, or llama2.c's .pt. It may be
    ``sharded``, until its folder was looked at."""
    found = params or path.parent / "params.json"
    if params is not None and not params.is_file():
        raise CheckpointError(f"{params} does not exist", "Check --params")
    if params is None and not found.is_file():
        return open_torch_llama(path, None, path)
    if sharded and path.name.startswith("consolidated."):
        return open_meta(path.parent, found)
    return open_torch_llama(path, read_json(found), found)


def open_torch_llama(path: Path, params: dict[str, Any] | None, params_path: Path) -> Checkpoint:
    """Open Llama weights; training files carry ``params`` of their own, which these override."""
    with open_files(path) as files:
        archive = TorchArchive(files[0])
        if is_whisper_archive(archive.value):
            return open_whisper_pt(path, archive, files)
        state, arguments = _parts(archive.value)
        trained = arguments is not None
        params = {**(arguments or {}), **(params or {})}
        if not params:
            raise CheckpointError(
                f"{path} has neither a params.json beside it nor model_args in it",
                "Put the params.json of these weights beside them, or give it with --params",
            )
        tensors = state_dict_tensors(archive, state)
        heads = positive_int(params, "n_heads", params_path)
        kv_heads = heads
        if params.get("n_kv_heads") is not None:
            kv_heads = positive_int(params, "n_kv_heads", params_path)
        paired = not params.get("use_hf_rope")  # half-split already, if it was converted
        renamed = rename_and_split(tensors, heads, kv_heads, path, paired)
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
        config = read_config(params, stored, heads, kv_heads, params_path)
        config["tie_word_embeddings"] = tied
        if config["model_type"] == "phi3":
            stored = fused(stored)
        if quantized:
            stored |= adaptors
        of_stories = trained and config["vocab_size"] <= STORY_TOKENS
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
            generation={"eos_token_id": STORY_ENDS} if of_stories else {},
            tokenizer=tokenizer,
            quantized_by="8da4w" if quantized else "",
            branches=branches,
            rotated=rotated_tensors(params, stored),
        )


def fused(stored: Mapping[str, ReadableTensor]) -> dict[str, ReadableTensor]:
    """Layers that Phi has as one, from the parts that a conversion made of them."""
    joined: dict[str, ReadableTensor] = {}
    for name, tensor in stored.items():
        layer, _, own = name.rpartition("_proj.weight")[0].rpartition(".")
        whole = next((one for one, parts in FUSED.items() if own in parts), None)
        if whole is None:
            joined[name] = tensor
        elif own == FUSED[whole][0]:
            names = [f"{layer}.{part}_proj.weight" for part in FUSED[whole]]
            rows = (RowRange(n, stored[n], 0, stored[n].shape[0]) for n in names if n in stored)
            joined[f"{layer}.{whole}_proj.weight"] = StackedTensor(tuple(rows))
    return joined


def _parts(value: Any) -> tuple[Any, dict[str, Any] | None]:
    """The weights in what torch.save wrote, and the model's sizes if it is a training checkpoint.

    Those have the weights under a name of their own, beside the optimiser and its progress.
    """
    if not isinstance(value, dict):
        return value, None
    state = next((value[name] for name in WEIGHTS if isinstance(value.get(name), dict)), None)
    if state is None:
        return value, None
    sizes = (value[name] for name in SIZES if isinstance(value.get(name), dict))
    return state, next(sizes, {})


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
