"""The checkpoint of a vision-language model, as that of its language model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.checkpoints.base import Checkpoint, TensorInfo
from satchel.checkpoints.jsonfile import read_json_if_there
from satchel.checkpoints.overlay import FloatTensor
from satchel.errors import CheckpointError, ConfigError
from satchel.quantize.superblocks import KeptRows
from satchel.remarks import remark
from satchel.vision_language.text_config import text_config


@dataclass(frozen=True)
class PatchTensor(FloatTensor):
    """A kernel [out, 3, p, p] as rows of windows, [out, p * p * 3]."""

    base: Checkpoint
    own_name: str
    info: TensorInfo

    @property
    def shape(self) -> tuple[int, ...]:
        return self.info.shape[0], self.info.shape[1] * self.info.shape[2] * self.info.shape[3]

    @property
    def dtype(self) -> str:
        return self.info.dtype

    def read(self, _name: str, rows: slice | None = None) -> NDArray[np.float32]:
        kernels = self.base.read(self.own_name, rows).transpose(0, 2, 3, 1)
        return np.ascontiguousarray(kernels).reshape(len(kernels), -1)


class TextCheckpoint(Checkpoint):
    """The language model's tensors under the names that it has alone, and those of the tower.

    ``plain_name`` gives no name to those that are left out.
    """

    def __init__(
        self, base: Checkpoint, plain_name: Callable[[str], str], kernel_name: str = ""
    ) -> None:
        self.base, self._kernel_name = base, kernel_name
        self.format, self.path = base.format, base.path
        self.generation, self.tokenizer = base.generation, base.tokenizer
        self.config = text_config(base.config)
        named = ((plain_name(name), name) for name in base.tensors)
        self._names = {plain: name for plain, name in named if plain}
        self._tensors = {plain: base.tensors[name] for plain, name in self._names.items()}
        if kernel_name:
            self._read_kernel(kernel_name)

    def _read_kernel(self, kernel_name: str) -> None:
        base = self.base
        kernel = self._tensors.get(kernel_name)
        if kernel is None or len(kernel.shape) != 4:
            raise CheckpointError(f"{base.path} lacks the kernel of an image's patches")
        self._kernel = PatchTensor(base, self._names[kernel_name], kernel)
        self._tensors[kernel_name] = TensorInfo(self._kernel.shape, kernel.dtype)

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        return self._tensors

    def read(self, name: str, rows: slice | None = None) -> NDArray[np.float32]:
        if name == self._kernel_name:
            return self._kernel.read(name, rows)
        return self.base.read(self._names.get(name, name), rows)

    def read_quantized(self, name: str, rows: slice | None = None) -> KeptRows:
        return self.base.read_quantized(self._names.get(name, name), rows)

    def close(self) -> None:
        self.base.close()


def configs(config: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Of what sees, and of the language model."""
    vision = config.get("vision_config")
    if not isinstance(vision, dict):
        raise ConfigError("the configuration has no vision_config")
    return vision, text_config(config)


def read_processor(checkpoint: Checkpoint) -> dict[str, Any]:
    """How images are prepared, from beside the weights; empty if nothing says it.

    processor_config.json has it among the rest of a processor, and goes before
    preprocessor_config.json, as transformers reads them.
    """
    folder = checkpoint.path if checkpoint.path.is_dir() else checkpoint.path.parent
    inner = read_json_if_there(folder / "processor_config.json").get("image_processor")
    if isinstance(inner, dict):
        return inner
    found = read_json_if_there(folder / "preprocessor_config.json")
    if not found:
        remark(f"{folder} has no preprocessor_config.json: images are prepared as is usual.")
    return found
