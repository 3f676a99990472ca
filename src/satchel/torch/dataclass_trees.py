"""Dataclasses that hold tensors, which torch.export takes where it has been told of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree


def know_dataclasses(value: Any) -> None:
    """Tell torch of the types of all dataclasses in there."""
    for leaf in pytree.tree_leaves(value):
        if dataclasses.is_dataclass(leaf) and not isinstance(leaf, type):
            torch.export.register_dataclass(
                type(leaf),
                serialized_type_name=f"{type(leaf).__module__}.{type(leaf).__qualname__}",
            )
            know_dataclasses([getattr(leaf, field.name) for field in dataclasses.fields(leaf)])


@contextmanager
def dataclasses_returned(module: nn.Module) -> Iterator[None]:
    """While it is on, torch is told of what the module returns."""
    hook = module.register_forward_hook(lambda _module, _inputs, output: know_dataclasses(output))
    try:
        yield
    finally:
        hook.remove()
