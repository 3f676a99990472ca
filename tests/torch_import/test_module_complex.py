"""Complex numbers as pairs, and Fourier transforms: torch's own numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import satchel
from satchel.errors import UnsupportedOperatorError
from support.compare import assert_close
from torch_import.module_table import Call


def spectrogram(x: Tensor) -> Tensor:
    window = torch.hann_window(16)
    return torch.stft(x, 16, 4, window=window, return_complex=True).abs().pow(2).clamp(1e-8).log()


def rotated(x: Tensor) -> Tensor:
    """As the first Llama turned its queries."""
    angles = torch.outer(torch.arange(12).float(), 0.3 ** torch.arange(4).float())
    turns = torch.polar(torch.ones_like(angles), angles)
    pairs = torch.view_as_complex(x.reshape(3, 12, 4, 2))
    return torch.view_as_real(pairs * turns).flatten(2)


def mixed(x: Tensor) -> Tensor:
    """As FNet mixes tokens and channels."""
    return torch.fft.fft(torch.fft.fft(x, dim=-1), dim=-2).real


def arithmetic(x: Tensor) -> Tensor:
    z = torch.complex(x, x.flip(0)) * (1 - 2j) + 3
    row = torch.ones(1, 96, dtype=torch.complex64)
    w = (z / (z.conj() + 5)).exp() - z.transpose(0, 1).mean(-1)[:3, None] @ row * 1j
    return torch.stack([w.abs(), w.angle(), torch.cat([w, -w])[3:].imag])


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (spectrogram, (2, 100)),
        (rotated, (3, 12, 8)),
        (mixed, (2, 9, 10)),
        (arithmetic, (3, 96)),
        (lambda x: torch.fft.irfft(torch.fft.rfft(x, norm="ortho"), 15, norm="ortho"), (2, 15)),
        (lambda x: torch.fft.irfft2(torch.fft.rfft2(x) * 2j + 1, x.shape), (6, 8)),
        (lambda x: torch.fft.ifft2(torch.fft.fftshift(torch.fft.fft2(x))).real, (2, 6, 5)),
    ],
)
def test_as_torch(function: Any, shape: tuple[int, ...], tmp_path: Path) -> None:
    torch.manual_seed(3)
    x = torch.randn(shape)
    module = Call(function).eval()
    path = satchel.export(module, (x,), tmp_path / "m.satchel")
    assert_close(satchel.load(path).method()(x.numpy()), module(x).numpy(), 2e-5)


def both(x: Tensor) -> Tensor:
    """In all four quarters of the plane."""
    return torch.complex(x, x.flip(0).roll(1, -1))


def part_set(x: Tensor) -> Tensor:
    z, real = both(x), x.clone()
    z[1:, :2] = x[1:, 2:]
    z[0] += 1j
    z.real[2] = 5
    real.copy_(z)
    return z * real


ROWS, ORDER = torch.tensor([2, 0, 2]), torch.tensor([1, 0, 2])
OPERATORS: dict[str, Any] = {
    "sqrt": lambda x: both(x).sqrt(),
    "sqrt_of_real": lambda x: torch.complex(x, torch.zeros_like(x)).sqrt(),
    "log": lambda x: both(x).log(),
    "powers": lambda x: both(x) ** 3 + both(x) ** 2 + both(x) ** 0.5 + both(x) ** -2.5,
    "sgn": lambda x: torch.sgn(both(x) * (x > 0)),
    "compared": lambda x: (both(x) == both(x).roll(1, 0)).float() + 2 * (both(x) != x),
    "linear": lambda x: nn.functional.linear(both(x), both(x).conj(), both(x)[:, 0]),
    "addmm": lambda x: torch.addmm(both(x)[:, :1], both(x), both(x).T, beta=2, alpha=0.5),
    "baddbmm": lambda x: torch.baddbmm(both(x)[None, :, :1], both(x)[None], both(x).T[None]),
    "index_put": lambda x: both(x).index_put((ORDER[:2],), x[:2] + 2j),
    "index_put_added": lambda x: both(x).index_put((ROWS,), both(x), accumulate=True),
    "index_add": lambda x: both(x).index_add(0, ROWS, both(x), alpha=2),
    "index_copy": lambda x: both(x).index_copy(0, ORDER, both(x) * 1j),
    "where": lambda x: torch.where(x > 0, both(x), x),
    "select_scatter": lambda x: torch.select_scatter(both(x), both(x)[0] * 1j, 0, 1),
    "part_set": part_set,
    "cumsum": lambda x: both(x).cumsum(1),
    "chosen": lambda x: both(x)[ORDER].gather(0, ROWS[None]) + both(x).index_select(1, ROWS),
    "triangles": lambda x: both(x).tril() + 2 * both(x).triu(1),
    "padded": lambda x: nn.functional.pad(both(x), (1, 2), value=1.5),
    "mirrored": lambda x: nn.functional.pad(both(x), (1, 2), mode="reflect"),
    "norms": lambda x: both(x).norm() + torch.linalg.vector_norm(both(x), 1, 1, True),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_as_torch(name: str, tmp_path: Path) -> None:
    torch.manual_seed(3)
    x, module = torch.randn(3, 4), Call(OPERATORS[name]).eval()
    want = module(x)
    want = torch.view_as_real(want) if want.is_complex() else want
    made = satchel.load(satchel.export(module, (x,), tmp_path / "m.satchel")).method()(x.numpy())
    assert made.shape == want.shape
    assert_close(made, want.numpy(), 1e-5)


class Turning(nn.Module):
    """A complex buffer that changes, as a filter's state does."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("state", torch.tensor([1 + 2j, -3j, 0.5]))

    def forward(self, x: Tensor) -> Tensor:
        self.state.mul_(1j).add_(x)
        return self.state.abs()


def test_a_complex_buffer_that_changes_is_a_state(tmp_path: Path) -> None:
    torch.manual_seed(3)
    path = satchel.export(Turning().eval(), (torch.randn(3),), tmp_path / "m.satchel")
    method, module = satchel.load(path).method(), Turning().eval()
    for x in torch.randn(4, 3):
        assert_close(method(x.numpy()), module(x).numpy(), 1e-5)


class Filter(nn.Module):
    """A complex buffer, input and output."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randn(5, dtype=torch.complex64))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight


def test_inputs_and_outputs_are_pairs(tmp_path: Path) -> None:
    torch.manual_seed(3)
    module, x = Filter().eval(), torch.randn(2, 5, dtype=torch.complex64)
    method = satchel.load(satchel.export(module, (x,), tmp_path / "m.satchel")).method()
    made = method(torch.view_as_real(x).numpy())
    assert made.shape == (2, 5, 2)
    assert_close(made, torch.view_as_real(module(x)).numpy(), 1e-6)


def test_what_has_no_pairs_is_named(tmp_path: Path) -> None:
    x = torch.randn(3, dtype=torch.complex64)
    with pytest.raises(UnsupportedOperatorError, match="of complex numbers"):
        satchel.export(Call(torch.tanh).eval(), (x,), tmp_path / "m.satchel")


class Noise(nn.Module):
    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {
            "rand": torch.rand(4000),
            "randn": torch.randn_like(x),
            "order": torch.randperm(100),
            "kept": nn.functional.dropout(x, 0.25, training=True),
            "coins": torch.bernoulli(torch.full((4000,), 0.3)),
            "dice": torch.randint(2, 8, (4000,)),
            "drawn": torch.multinomial(torch.tensor([0.1, 0.0, 0.6, 0.3]), 4000, True),
            "few": torch.multinomial(torch.ones(6), 4),
        }


def test_random_numbers_are_functions_of_a_seed(tmp_path: Path) -> None:
    x = torch.full((4000,), 3.0)
    with pytest.warns(UserWarning, match="seed"):
        path = satchel.export(Noise().eval(), (x,), tmp_path / "m.satchel")
    method = satchel.load(path).method()
    assert method.inputs == ["x", "seed"]
    made = method(x.numpy(), seed=np.int64(7))
    again, other = method(x.numpy(), seed=np.int64(7)), method(x.numpy(), seed=np.int64(8))
    for name, numbers in made.items():
        np.testing.assert_array_equal(numbers, again[name])
        assert (numbers != other[name]).any(), name
    assert made["rand"].min() >= 0 and made["rand"].max() < 1
    shares = np.histogram(made["rand"], 10, (0, 1))[0]
    assert (np.abs(shares - 400) < 5 * 19).all()
    assert abs(made["randn"].mean()) < 0.06 and abs(made["randn"].std() - 1) < 0.06
    assert abs(np.corrcoef(made["rand"], made["randn"])[0, 1]) < 0.06
    assert abs(np.corrcoef(made["rand"][1:], made["rand"][:-1])[0, 1]) < 0.06
    assert sorted(made["order"]) == list(range(100))
    assert set(made["kept"].tolist()) == {0.0, 4.0}
    assert abs((made["kept"] == 0).mean() - 0.25) < 0.04
    assert abs(made["coins"].mean() - 0.3) < 0.04
    assert set(made["dice"].tolist()) == set(range(2, 8))
    counts = np.bincount(made["drawn"], minlength=4) / 4000
    assert np.abs(counts - [0.1, 0.0, 0.6, 0.3]).max() < 0.04 and counts[1] == 0
    assert len(set(made["few"].tolist())) == 4
