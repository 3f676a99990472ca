"""``self.h = …`` of a buffer, which torch.export follows in the outermost module only.

And there, it takes what was read from a buffer before for what has been written since.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.export._trace as torch_trace
from torch import nn
from torch.nn.modules.module import register_module_buffer_registration_hook
from torch.utils import _pytree as pytree

from satchel.errors import ImportModuleError

_TORCHS_OWN = "register_buffer_assignment_hook"


def _nothing(*_: object) -> None:
    """In the place of torch's own hook."""


class AssignedBuffers:
    """While it is on, what has been assigned is written into the buffers when the call ends."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._names = {part: name for name, part in module.named_modules()}
        self._first: dict[tuple[nn.Module, str], torch.Tensor] = {}

    def __enter__(self) -> None:
        self._torchs_own = getattr(torch_trace, _TORCHS_OWN, None)
        setattr(
            torch_trace, _TORCHS_OWN, lambda *_: register_module_buffer_registration_hook(_nothing)
        )
        self._hooks = [
            register_module_buffer_registration_hook(self._remember),
            self._module.register_forward_pre_hook(lambda *_: self._first.clear()),
            self._module.register_forward_hook(self._write),
        ]

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()
        setattr(torch_trace, _TORCHS_OWN, self._torchs_own)

    def _remember(self, part: nn.Module, name: str, _: Any) -> None:
        before = part._buffers.get(name)
        if part in self._names and before is not None:
            self._first.setdefault((part, name), before)

    def _write(self, _module: nn.Module, _inputs: Any, outputs: Any) -> Any:
        if not self._first:
            return None
        # Results and later values may be the earlier ones themselves.
        outputs = pytree.tree_map(
            lambda x: x.clone() if isinstance(x, torch.Tensor) else x, outputs
        )
        later = [self._later(*place) for place in self._first]
        for ((part, name), before), value in zip(self._first.items(), later, strict=True):
            before.copy_(value)
            part._buffers[name] = before
        return outputs

    def _later(self, part: nn.Module, name: str) -> torch.Tensor:
        before, now = self._first[part, name], part._buffers[name]
        if now is None or (now.shape, now.dtype) != (before.shape, before.dtype):
            path = f"{self._names[part]}.{name}".lstrip(".")
            became = "None" if now is None else f"{now.dtype} {list(now.shape)}"
            raise ImportModuleError(
                f"the buffer {path} of {before.dtype} {list(before.shape)} becomes {became}",
                "A state keeps its type and size: give the buffer its largest size at once.",
            )
        return now.clone()
