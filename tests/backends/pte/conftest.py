"""Running .pte files in ExecuTorch's own runtime, where the extra ``executorch`` is installed:

pip install 'satchel[executorch,test]' && pytest tests/backends/pte
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

Array = NDArray[Any]


class PteFile:
    """A .pte file in the runtime."""

    def __init__(self, path: Path) -> None:
        from executorch.runtime import Runtime

        self.program = Runtime.get().load_program(path)
        self._forward: Any = None

    def told(self, method: str) -> list[Any]:
        """What a method without inputs gives."""
        return list(self.program.load_method(method).execute([]))

    def forward(self, *arrays: Array) -> Array:
        import torch

        self._forward = self._forward or self.program.load_method("forward")
        return self._forward.execute([torch.tensor(a) for a in arrays])[0].numpy().copy()

    def logits(self, tokens: Array, blocks: list[int]) -> Array:
        """Of the last token of each block, or of all tokens if the file gives those."""
        rows, at = [], 0
        for count in blocks:
            block = np.asarray(tokens[at : at + count], np.int64)[None]
            out = self.forward(block, np.array([at], np.int64))
            rows.append(out.reshape(-1, out.shape[-1]))
            at += count
        return np.concatenate(rows)


@pytest.fixture(scope="session")
def open_pte() -> type[PteFile]:
    pytest.importorskip("executorch.runtime", reason="pip install 'satchel[executorch]'")
    pytest.importorskip("executorch.extension.llm.custom_ops.custom_ops")
    pytest.importorskip("executorch.kernels.quantized")
    return PteFile
