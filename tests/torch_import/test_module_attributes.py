"""What a module keeps in attributes becomes a state of the program, or the export refuses."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import satchel
from satchel.errors import ImportModuleError


class Hidden(nn.Module):
    """A recurrent layer whose state is assigned, twice in a call."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(3, 4)
        self.register_buffer("h", torch.zeros(2, 4))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        before = self.h
        self.h = self.cell(x, self.h)
        self.h = self.h * 0.9
        return self.h, before[:, 1:]


class Swapped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("a", torch.ones(2, 3), persistent=False)
        self.register_buffer("b", torch.arange(3.0).repeat(2, 1))

    def forward(self, x: Tensor) -> Tensor:
        self.a, self.b = self.b, self.a
        self.a = self.a + x
        return self.a - self.b


class PlainTensor(nn.Module):
    """A state that nobody has registered."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = torch.zeros(2, 3)
        self.count = torch.tensor(0)

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        self.mean = self.mean + (x - self.mean) / self.count
        return x - self.mean


class Table(nn.Module):
    """Positions that are made once, and results that are only kept to be looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.positions: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.positions is None:
            self.positions = torch.arange(x.shape[1]).float()
        self.last = x * self.positions
        return self.last.relu()


def _check(module: nn.Module, folder: Path) -> None:
    module.eval()
    given = [torch.randn(2, 3) for _ in range(4)]
    path = satchel.export(copy.deepcopy(module), (given[0],), folder / "x.satchel")
    method = satchel.load(path).method()
    for x in given:
        with torch.no_grad():
            wanted = torch.utils._pytree.tree_leaves(module(x))
        for mine, theirs in zip(method.run(x.numpy()), wanted, strict=True):
            np.testing.assert_allclose(mine, theirs.numpy(), 1e-4, 1e-5)


@pytest.mark.parametrize("kind", [Hidden, Swapped, PlainTensor, Table])
def test_a_submodules_attributes_are_followed(kind: type[nn.Module], tmp_path: Path) -> None:
    torch.manual_seed(0)
    _check(nn.Sequential(nn.Tanh(), kind()), tmp_path)


@pytest.mark.parametrize("kind", [Hidden, Swapped, PlainTensor, Table])
def test_the_modules_own_attributes_are_followed(kind: type[nn.Module], tmp_path: Path) -> None:
    torch.manual_seed(0)
    _check(kind(), tmp_path)


class Number(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x * self.calls


class History(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(x)
        return torch.stack(self.seen).sum(0)


class Later(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("before", None)

    def forward(self, x: Tensor) -> Tensor:
        self.before = x if self.before is None else self.before + x
        return self.before.relu()


@pytest.mark.parametrize(
    ("kind", "name"), [(Number, "calls"), (History, "seen"), (Later, "before")]
)
def test_what_no_state_can_hold_is_refused(
    kind: type[nn.Module], name: str, tmp_path: Path
) -> None:
    module = nn.Sequential(nn.ReLU(), kind()).eval()
    with pytest.raises(ImportModuleError, match=f"depends on 1.{name}.*no buffer"):
        satchel.export(module, (-torch.ones(2, 3),), tmp_path / "x.satchel")
    assert not list(tmp_path.iterdir())
    assert not getattr(module[1], name)


class Growing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("past", torch.zeros(1, 3))

    def forward(self, x: Tensor) -> Tensor:
        self.past = torch.cat([self.past, x])
        return self.past.sum(0)


def test_a_buffer_that_grows_is_refused(tmp_path: Path) -> None:
    module = nn.Sequential(nn.ReLU(), Growing()).eval()
    with pytest.raises(ImportModuleError, match=r"1\.past of torch.float32 \[1, 3\] becomes"):
        satchel.export(module, (torch.ones(2, 3),), tmp_path / "x.satchel")
    assert module[1].past.shape == (1, 3)
