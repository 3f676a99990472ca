"""What cannot be imported is said at once, with its place, and nothing is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import satchel
from satchel.errors import ConfigError, ImportModuleError, RecipeError, UnsupportedOperatorError


class Inner(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.special.i0(x)


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()

    def forward(self, x: Tensor) -> Tensor:
        return torch.digamma(self.inner(x)) + torch.searchsorted(x, x, sorter=x.argsort())


def test_all_unsupported_operators_are_named_with_their_place(tmp_path: Path) -> None:
    output = tmp_path / "x.satchel"
    with pytest.raises(UnsupportedOperatorError) as caught:
        satchel.export(Outer().eval(), (torch.randn(4),), output)
    found = caught.value.operators
    assert len(found) == 3
    assert found[0].startswith("aten.i0.default in inner at test_module_errors.py:")
    assert found[1].startswith("aten.digamma.default at test_module_errors.py:")
    assert "aten.searchsorted.Tensor (searching in numbers that are sorted by others)" in found[2]
    assert all(one in caught.value.message for one in found)
    assert not list(tmp_path.iterdir())


def test_a_module_in_training_is_refused() -> None:
    with pytest.raises(ImportModuleError, match="training mode.*eval"):
        satchel.export(nn.Linear(2, 2), (torch.randn(1, 2),))


def test_what_is_no_module_is_refused() -> None:
    with pytest.raises(ImportModuleError, match="dict is not a torch.nn.Module"):
        satchel.export({}, (torch.randn(1, 2),))


def test_inputs_must_be_a_tuple() -> None:
    with pytest.raises(ConfigError, match="tuple of tensors"):
        satchel.export(nn.Linear(2, 2).eval(), torch.randn(1, 2))


def test_inputs_that_do_not_fit_are_torchs_error_on_one_line() -> None:
    with pytest.raises(ImportModuleError, match="torch.export failed") as caught:
        satchel.export(nn.Linear(2, 2).eval(), (torch.randn(1, 3),))
    assert "\n" not in caught.value.message


def test_a_module_without_data_is_refused() -> None:
    with torch.device("meta"):
        module = nn.Linear(2, 2).eval()
    with pytest.raises(ImportModuleError, match="has no data"):
        satchel.export(module, (torch.randn(1, 2, device="meta"),))


def test_an_unknown_target_is_refused() -> None:
    with pytest.raises(ConfigError, match="no target 'moon'"):
        satchel.export(nn.Linear(2, 2).eval(), (torch.randn(1, 2),), target="moon")


def test_an_unknown_recipe_is_refused_before_the_long_work() -> None:
    with pytest.raises(RecipeError, match="no recipe 'int3'"):
        satchel.export(nn.Linear(2, 2).eval(), (torch.randn(1, 2),), recipe="int3")


def test_a_symbolic_size_needs_a_largest_value() -> None:
    shapes = ({0: torch.export.Dim("n")},)
    with pytest.raises(ImportModuleError, match="no largest value"):
        satchel.export(nn.ReLU().eval(), (torch.randn(3, 2),), dynamic_shapes=shapes)


class Function(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(*inputs)


REFUSED = {
    "nine dimensions": (lambda x: x[None, None, None, None, None, None, None] * 2, "9 dimensions"),
    "linalg": (torch.linalg.svdvals, "aten._linalg_svd"),
    "loop": (
        lambda x: torch.while_loop(lambda x: x.sum() < 9, lambda x: (x + 1,), (x,))[0],
        "a graph within the graph",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_written_is_told_in_our_own_words(name: str, tmp_path: Path) -> None:
    function, message = REFUSED[name]
    with pytest.raises(UnsupportedOperatorError, match=message):
        satchel.export(Function(function).eval(), (torch.randn(2, 2),), tmp_path / "x.satchel")
