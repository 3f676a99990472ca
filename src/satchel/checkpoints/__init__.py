"""Checkpoints: where weights come from, read lazily, one tensor at a time."""

from satchel.checkpoints.base import Checkpoint, TensorInfo, TokenizerSource
from satchel.checkpoints.open import open_checkpoint

__all__ = ["Checkpoint", "TensorInfo", "TokenizerSource", "open_checkpoint"]
