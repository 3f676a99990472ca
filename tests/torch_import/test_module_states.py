"""Buffers that a module changes are states of its program; changed inputs are no outputs."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import satchel
from satchel.backends.qnn.place import place_module
from satchel.errors import ProgramFormatError, UnsupportedOperatorError
from satchel.graph.passes import WRITTEN_OUT, optimize
from satchel.torch.capture import capture
from satchel.torch.importer import import_program
from support.compare import assert_close


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("n", torch.tensor(3))
        self.register_buffer("seen", torch.zeros(2, dtype=torch.bool), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        self.n += 1
        self.seen.logical_or_(x > 1)
        return x + self.n + self.seen


class Cache(nn.Module):
    """Keys of the last tokens, as a KV cache with a fixed size is written."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(4, 4)
        self.register_buffer("keys", torch.zeros(1, 8, 4))

    def forward(self, x: Tensor, position: Tensor) -> Tensor:
        self.keys.index_copy_(1, position, self.project(x))
        return torch.softmax(x @ self.keys.transpose(1, 2), -1) @ self.keys


class Ring(nn.Module):
    """Written where a number says that is a tensor, which torch.export cannot look at."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("n", torch.tensor(0))
        self.register_buffer("last", torch.zeros(3, 4))
        self.register_buffer("square", torch.zeros(2, 3, 5))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        row = self.n.remainder(3)
        self.last[row] = x
        self.square[..., row, 1:] = x
        self.square[-1, row, row - 2] = 7
        self.n += 1
        return self.last.clone(), self.square + 0


class Swapping(nn.Module):
    """Two buffers that become each other, and one that is returned as it was."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("a", torch.tensor([1.0, 2.0]))
        self.register_buffer("b", torch.tensor([5.0, 7.0]))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        old = self.a.clone()
        self.a.copy_(self.b)
        self.b.copy_(old)
        return self.a * x, old


class Rolling(nn.Module):
    """A window of the last inputs, as streaming convolutions keep."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(2, 3, 4)
        self.register_buffer("past", torch.ones(1, 2, 3))

    def forward(self, x: Tensor) -> Tensor:
        whole = torch.cat([self.past, x], 2)
        self.past.copy_(whole[:, :, -3:])
        return self.conv(whole)


def _inputs(module: nn.Module, step: int) -> tuple[Tensor, ...]:
    torch.manual_seed(step)
    if isinstance(module, Cache):
        return torch.randn(1, 1, 4), torch.tensor([step])
    if isinstance(module, Ring):
        return (torch.randn(4),)
    return (torch.randn(1, 2, 5) if isinstance(module, Rolling) else torch.randn(2),)


@pytest.mark.parametrize("kind", [Counter, Cache, Ring, Swapping, Rolling])
def test_a_buffer_that_changes_is_a_state(kind: type[nn.Module], tmp_path: Path) -> None:
    torch.manual_seed(1)
    module = kind().eval()
    path = satchel.export(copy.deepcopy(module), _inputs(module, 0), tmp_path / "x.satchel")
    program = satchel.load(path, verify=True)
    instance = program.instance()
    first = None
    for step in range(5):
        inputs = _inputs(module, step)
        with torch.no_grad():
            wanted = module(*inputs)
        listed = wanted if isinstance(wanted, tuple) else (wanted,)
        got = instance.method("forward").run(*(x.numpy() for x in inputs))
        assert len(got) == len(listed)
        for mine, theirs in zip(got, listed, strict=True):
            assert_close(mine, theirs.numpy(), 1e-5, f"step {step}")
        first = got if first is None else first
    again = [x.numpy() for x in _inputs(module, 0)]
    assert not np.array_equal(instance.method("forward").run(*again)[0], first[0])
    instance.reset()
    np.testing.assert_array_equal(instance.method("forward").run(*again)[0], first[0])
    np.testing.assert_array_equal(program.instance().method("forward").run(*again)[0], first[0])


def test_states_survive_quantisation(tmp_path: Path) -> None:
    torch.manual_seed(1)
    module = Rolling().eval()
    examples = [_inputs(module, step)[0] for step in range(8)]
    path = satchel.export(
        copy.deepcopy(module),
        (examples[0],),
        tmp_path / "x.satchel",
        recipe="int8",
        calibration=examples,
    )
    method = satchel.load(path).method()
    for x in examples:
        with torch.no_grad():
            wanted = module(x).numpy()
        assert np.abs(method(x.numpy()) - wanted).max() < 0.1 * np.abs(wanted).max()


def test_an_initial_value_of_another_type_is_refused(tmp_path: Path) -> None:
    path = satchel.export(Swapping().eval(), (torch.randn(2),), tmp_path / "x.satchel")
    data = path.read_bytes()
    assert data.count(b"initial/a") == data.count(b"initial/b") == 1
    # The first weight begins another state than that it is named after: the checksum tells.
    path.write_bytes(data.replace(b"initial/a", b"initial/c"))
    with pytest.raises(ProgramFormatError):
        satchel.load(path)


class InPlace(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        x.sub_(1.0)
        return torch.relu_(x) * 2


def test_an_input_that_is_changed_in_place_is_no_output(tmp_path: Path) -> None:
    x = torch.randn(3, 4)
    with pytest.warns(UserWarning, match="changes its input x in place"):
        path = satchel.export(InPlace().eval(), (x.clone(),), tmp_path / "x.satchel")
    method = satchel.load(path).method()
    assert method.outputs == ["output"]
    given = x.numpy().copy()
    np.testing.assert_allclose(method(given), InPlace()(x.clone()).numpy(), rtol=1e-6)
    np.testing.assert_array_equal(given, x.numpy())


class Named(nn.Module):
    def forward(self, x: Tensor) -> dict[str, object]:
        return {"logits": x + 1, "nothing": None, "more": (x * 2, {"deep": x - 1}), "rank": 2}


def test_outputs_have_the_names_that_the_module_gives_them(tmp_path: Path) -> None:
    x = torch.randn(3)
    path = satchel.export(Named().eval(), (x,), tmp_path / "x.satchel")
    got = satchel.load(path).method()(x.numpy())
    assert isinstance(got, dict)
    assert set(got) == {"logits", "more.0", "more.1.deep", "rank"}
    np.testing.assert_allclose(got["more.1.deep"], x.numpy() - 1, rtol=1e-6)
    assert got["rank"] == 2


@dataclass
class Part:
    weights: Tensor
    label: str = "part"


@dataclass
class Whole:
    logits: Tensor
    part: Part
    missing: Tensor | None = None


class Returning(nn.Module):
    def forward(self, given: Part) -> Whole:
        return Whole(given.weights * 2, Part(given.weights - 1))


def test_dataclasses_are_inputs_and_outputs(tmp_path: Path) -> None:
    x = torch.randn(3)
    path = satchel.export(Returning().eval(), (Part(x),), tmp_path / "x.satchel")
    method = satchel.load(path).method()
    assert method.outputs == ["logits", "part.weights"]
    np.testing.assert_allclose(method(x.numpy())["part.weights"], x.numpy() - 1, rtol=1e-6)


def test_an_npu_has_no_states(tmp_path: Path) -> None:
    program = capture(Rolling().eval(), (torch.randn(1, 2, 5),))
    graph = optimize(import_program(program).graph, WRITTEN_OUT)
    with pytest.raises(UnsupportedOperatorError, match="past: a buffer that the module changes"):
        place_module(graph)
