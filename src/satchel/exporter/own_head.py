"""The head of a checkpoint whose configuration ties it to the embedding, and that has another."""

from __future__ import annotations

import numpy as np

from satchel.checkpoints.base import Checkpoint
from satchel.remarks import remark

# (embedding, head), as families name them
_NAMES = (
    ("model.embed_tokens.weight", "lm_head.weight"),
    ("gpt_neox.embed_in.weight", "embed_out.weight"),
)
_TIED = "tie_word_embeddings"  # without it, families differ
_ROWS = 1024  # compared at a time


def untie_own_head(checkpoint: Checkpoint) -> None:
    """What fine-tuning has made of the head counts more than the configuration, as elsewhere."""
    if checkpoint.config.get(_TIED) is False or not _has_own_head(checkpoint):
        return
    if checkpoint.config.get(_TIED):
        remark(
            "The configuration ties the output head to the embedding, and the checkpoint has a "
            "head of its own, which differs. That one is used."
        )
    checkpoint.config[_TIED] = False


def _has_own_head(checkpoint: Checkpoint) -> bool:
    return any(_differ(checkpoint, *names) for names in _NAMES)


def _differ(checkpoint: Checkpoint, embedding: str, head: str) -> bool:
    """Many checkpoints hold one matrix twice, under both names."""
    tensors = checkpoint.tensors
    if embedding not in tensors or head not in tensors:
        return False
    shape = tensors[embedding].shape
    if tensors[head].shape != shape:
        return False  # which is told where shapes are checked
    for start in range(0, shape[0], _ROWS):
        rows = slice(start, min(start + _ROWS, shape[0]))
        one, other = checkpoint.read(head, rows), checkpoint.read(embedding, rows)
        if not np.array_equal(one, other, equal_nan=True):
            return True
    return False
