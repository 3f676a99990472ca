"""Tensors without numbers, against torch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import satchel
from satchel.errors import ImportModuleError, UnsupportedOperatorError
from support.compare import assert_close


class Function(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.eval()

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(*inputs)


def rotate_all(x: Tensor) -> Tensor:
    """GPT-J's and Phi's way, where the whole head is rotated and nothing is left."""
    turned, rest = x[..., :8], x[..., 8:]
    return torch.cat([torch.cat([-turned[..., 4:], turned[..., :4]], -1) * 2, rest + 1], -1)


def put_nothing(x: Tensor) -> Tensor:
    nowhere = torch.zeros(0, dtype=torch.int64)
    x = x.index_add(0, nowhere, x[:0]).index_copy(0, nowhere, x[:0])
    return x.scatter(0, nowhere[:, None].expand(0, 8), x[:0]) + x.slice_scatter(x[:0], 0, 2, 2)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "rotated as a whole": rotate_all,
    "a part of nothing in a split": lambda x: torch.cat(x.split([3, 0, 5], -1)[::-1], -1),
    "none of the rows": lambda x: torch.cat([x[3:3].relu().view(0, 8), x]),
    "the sum of none": lambda x: x[:, 4:4].sum(-1) + x.sum(-1),
    "the product of none": lambda x: x[:0].prod(0) * x,
    "matrices without columns": lambda x: x[:, :0] @ x[:0] + x.sum(),
    "put nowhere": put_nothing,
    "a step from the end": lambda x: torch.cat([x[5:2:2], x[::2]]),
    "torch's oldest empty": lambda x: torch.cat([torch.zeros(0), x], -1),
    "all of none": lambda x: torch.where(x[:0].bool().all(), x, -x) + x[:0].bool().any(),
    "chosen from none": lambda x: torch.cat([x[torch.zeros(0, dtype=torch.int64)], x]),
    "padded from none": lambda x: nn.functional.pad(x[:, :0], (3, 5), value=2.0) + x,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_empty_parts_are_as_torch_has_them(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)  # sums are compared too, which may nearly vanish
    module, x = Function(FUNCTIONS[name]), torch.randn(6, 8)
    method = satchel.load(satchel.export(module, (x,), tmp_path / "m.satchel")).method()
    assert_close(method(x.numpy()), module(x).numpy(), 1e-6)


def test_beside_a_size_that_changes(tmp_path: Path) -> None:
    module, rows = Function(rotate_all), {0: torch.export.Dim("rows", min=2, max=9)}
    path = satchel.export(
        module, (torch.randn(4, 8),), tmp_path / "m.satchel", dynamic_shapes=((rows,),)
    )
    for count in (2, 9):
        x = torch.randn(count, 8)
        assert_close(satchel.load(path).method()(x.numpy()), module(x).numpy(), 1e-6)


def test_results_and_inputs_have_numbers(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedOperatorError, match="the output output_1 has no numbers"):
        satchel.export(Function(lambda x: (x, x[:0])), (torch.ones(2),), tmp_path / "m.satchel")
    with pytest.raises(ImportModuleError, match="a dimension below 1"):
        satchel.export(Function(lambda x: x.sum()), (torch.ones(0),), tmp_path / "m.satchel")
