"""``x[i] = y`` with a number ``i`` that is a tensor, which torch.export would ask for its value."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class TensorIndices(TorchFunctionMode):  # type: ignore[misc]
    """While it is on, such an ``i`` is written as one of a row of one numbers."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is torch.Tensor.__setitem__:
            index = _listed(args[1])
            others = [one for one in index if not _is_number(one)]
            if len(others) < len(index) and all(map(_is_plain, others)):
                return _put(args[0], index, args[2])
        return func(*args, **(kwargs or {}))


def _listed(index: Any) -> tuple[Any, ...]:
    return index if isinstance(index, tuple) else (index,)


def _is_number(index: Any) -> bool:
    whole = isinstance(index, torch.Tensor) and index.dim() == 0
    return whole and not index.is_floating_point() and index.dtype != torch.bool


def _is_plain(index: Any) -> bool:
    return index is None or index is Ellipsis or isinstance(index, (int, slice))


def _put(x: torch.Tensor, index: tuple[Any, ...], value: Any) -> None:
    rows = tuple(i.reshape(1) if _is_number(i) else i for i in index)
    if isinstance(value, torch.Tensor) and value.dim() > 0:
        place = _place_of_rows(x, rows)
        shape = list(x[rows].shape)
        del shape[place]
        # Ones in front say nothing, and there may be more of them than dimensions.
        value = value.reshape(value.shape[max(0, value.dim() - len(shape)) :])
        value = value.expand(shape).unsqueeze(place)
    x[rows] = value


def _place_of_rows(x: torch.Tensor, index: tuple[Any, ...]) -> int:
    """Where the dimension of what tensors name is in x[index]; first, if they are not together."""
    tensors = [i for i, one in enumerate(index) if isinstance(one, torch.Tensor)]
    between = [one for one in index[tensors[0] : tensors[-1]] if not isinstance(one, int)]
    if not all(isinstance(one, torch.Tensor) for one in between):
        return 0
    named = sum(one is not None and one is not Ellipsis for one in index)
    place = 0
    for one in index[: tensors[0]]:
        place += x.dim() - named if one is Ellipsis else 0 if isinstance(one, int) else 1
    return place
