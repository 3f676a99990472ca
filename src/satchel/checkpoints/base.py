"""What every checkpoint reader offers, whatever the format on disk."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from satchel.encodings.encoding import Encoding
from satchel.errors import CheckpointError
from satchel.quantize.superblocks import KeptRows


@dataclass(frozen=True)
class TensorInfo:
    """A tensor as it lies in the checkpoint: known without reading its data."""

    shape: tuple[int, ...]
    dtype: str  # as the format calls it, in lower case: "f32", "bf16", "q4_1", …
    own_encoding: Encoding | None = None  # that stores it as it is, without rounding
    order: NDArray[np.int32] | None = None  # of the columns of its codes, if not their own


TokenizerKind = Literal["huggingface", "sentencepiece", "tiktoken", "llama2c", "gguf", "whisper"]


@dataclass(frozen=True)
class TokenizerSource:
    """Where a checkpoint's tokenizer comes from; ``satchel.llm.tokenizer`` reads it."""

    kind: TokenizerKind
    path: Path  # a folder or its tokenizer.json for huggingface, a file for the others
    metadata: Mapping[str, Any] = field(default_factory=dict)  # gguf: all its key-value pairs


class Checkpoint(ABC):
    """A model's weights on disk, read one tensor (or one block of rows) at a time.

    Names, shapes and configuration follow Hugging Face's conventions for the model type, and
    rotary weights are in half-split form, so that a model file does not know about formats.
    """

    format: str  # "safetensors", "pytorch", "gguf", "meta" or "llama2c"
    path: Path
    config: dict[str, Any]  # config.json's terms, "model_type" included
    generation: dict[str, Any]  # generation_config.json's terms; empty when unknown
    tokenizer: TokenizerSource | None
    quantized_by: str = ""  # the method, for a checkpoint that is not meant to be rounded again
    # Low-rank branches that belong to the model: by a weight's tensor, the tensors a and b of
    # which b(a(x)) is added to its layer's result.
    branches: Mapping[str, tuple[str, str]] = {}
    # Tensors of layers whose input goes through a Hadamard transform first (SpinQuant).
    rotated: frozenset[str] = frozenset()

    @property
    @abstractmethod
    def tensors(self) -> Mapping[str, TensorInfo]:
        """All tensors by name."""

    @abstractmethod
    def read(self, name: str, rows: slice | None = None) -> NDArray[np.float32]:
        """A tensor, or only the given rows of it, as contiguous float32."""

    def read_quantized(self, name: str, rows: slice | None = None) -> KeptRows:
        """The same of a tensor that is quantised: its codes as they lie in the checkpoint."""
        raise CheckpointError(f"{self.path}: tensor {name} is not quantised")

    @abstractmethod
    def close(self) -> None:
        """Close the files. Reading afterwards is an error."""

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
