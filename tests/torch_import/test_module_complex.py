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
