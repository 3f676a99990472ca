"""What a module keeps from call to call in attributes that are no buffers.

torch.export follows what is written into buffers, which becomes states of the program. What is
written into plain attributes, or buffers of None, it forgets: every call would be the first.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

_OF_EVERY_MODULE = frozenset(vars(nn.Module()))
_Kept = dict[str, dict[str, Any]]  # attributes of each submodule, by name


class Watch:
    """Sees which attributes a module sets while it is called, and puts back what they were."""

    def __init__(self, module: nn.Module) -> None:
        self.changed: list[str] = []
        self._module = module
        self._before = _attributes(module)
        leaves = pytree.tree_leaves(self._before)
        self._numbers = [(x, x.detach().clone()) for x in leaves if _is_tensor(x)]
        self._empty = [
            (f"{name}.{key}".lstrip("."), part._buffers, key)
            for name, part in module.named_modules()
            for key, buffer in part._buffers.items()
            if buffer is None
        ]

    def __enter__(self) -> Watch:
        self._hook = self._module.register_forward_hook(self._look)
        return self

    def __exit__(self, *_error: object) -> None:
        self._hook.remove()
        for name, part in self._module.named_modules():
            for attribute in set(vars(part)) - _OF_EVERY_MODULE - set(self._before.get(name, ())):
                del part.__dict__[attribute]
            part.__dict__.update(self._before.get(name, {}))
        for tensor, numbers in self._numbers:
            tensor.detach().copy_(numbers)
        for _, buffers, key in self._empty:
            buffers[key] = None

    def _look(self, *_call: object) -> None:
        now = _attributes(self._module)
        found = {
            f"{name}.{attribute}".lstrip(".")
            for name, values in now.items()
            for attribute, value in values.items()
            if not _same(self._before.get(name, {}).get(attribute), value)
        }
        filled = {name for name, buffers, key in self._empty if buffers.get(key) is not None}
        self.changed = sorted({*self.changed, *found, *filled})


@contextmanager
def tensors_as_buffers(module: nn.Module) -> Iterator[None]:
    """While it is on, tensors in plain attributes are buffers, so that changes are followed."""
    moved = [
        (part, name, value)
        for part in module.modules()
        for name, value in vars(part).items()
        if type(value) is torch.Tensor
    ]
    for part, name, value in moved:
        del part.__dict__[name]
        part.register_buffer(name, value, persistent=False)
    try:
        yield
    finally:
        for part, name, value in moved:
            delattr(part, name)
            part.__dict__[name] = value


def answers_differ(module: nn.Module, inputs: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a second call with the same inputs and buffers has another result than the first.

    Asked with the inputs and with their opposites, because a ReLU may hide one of them.
    """
    given = (tuple(inputs), dict(kwargs))
    return _second_differs(module, *given) or _second_differs(
        module, *pytree.tree_map(_opposite, given)
    )


def _second_differs(module: nn.Module, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    buffers = {name: (b, b.clone()) for name, b in module.named_buffers()}
    results = []
    with Watch(module), torch.random.fork_rng(devices=[]):
        for _ in range(2):
            torch.manual_seed(0)
            found = module(*pytree.tree_map(_copy, inputs), **pytree.tree_map(_copy, kwargs))
            results.append([_copy(x) for x in pytree.tree_leaves(found) if _is_tensor(x)])
            _put_back(module, buffers)
    first, second = results
    return len(first) != len(second) or not all(map(_close, first, second))


def _put_back(module: nn.Module, buffers: dict[str, tuple[torch.Tensor, torch.Tensor]]) -> None:
    for name, (own, numbers) in buffers.items():
        path, _, last = name.rpartition(".")
        own.copy_(numbers)
        module.get_submodule(path)._buffers[last] = own


def _close(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and bool(torch.allclose(a, b, rtol=1e-5, equal_nan=True))


def _copy(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else copy.deepcopy(value)


def _opposite(value: Any) -> Any:
    floats = isinstance(value, torch.Tensor) and value.is_floating_point()
    return -value if floats else value


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _attributes(module: nn.Module) -> _Kept:
    """Lists and dictionaries are copied, what is in them is not."""
    return {name: pytree.tree_map(lambda x: x, _own(part)) for name, part in module.named_modules()}


def _own(part: nn.Module) -> dict[str, Any]:
    return {key: value for key, value in vars(part).items() if key not in _OF_EVERY_MODULE}


def _same(a: Any, b: Any) -> bool:
    """Whether it is the same object, number or text, or a container of the same."""
    ours, form = pytree.tree_flatten(a)
    theirs, other_form = pytree.tree_flatten(b)
    return bool(form == other_form) and all(
        x is y or (isinstance(x, (int, float, str)) and x == y)
        for x, y in zip(ours, theirs, strict=True)
    )
