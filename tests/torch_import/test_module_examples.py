"""What int8 is calibrated on may have the form of the module's arguments, and what it is told."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

import satchel
from satchel.quantize.static import worst_decibels


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 6)

    def forward(self, batch: dict[str, Tensor], more: tuple[Tensor, Tensor | None]) -> Tensor:
        return self.layer(batch["x"]) + batch["shift"] * more[0]


def _nested() -> tuple[Any, ...]:
    return {"x": torch.randn(4, 8), "shift": torch.randn(6)}, (torch.randn(4, 1), None)


def test_examples_have_the_form_of_the_arguments(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = Nested().eval()
    examples = [_nested() for _ in range(4)]
    path = satchel.export(
        module, _nested(), tmp_path / "m.satchel", recipe="int8", calibration=examples
    )
    batch, (scale, _) = examples[0]
    arrays = [batch["x"].numpy(), batch["shift"].numpy(), scale.numpy()]
    with torch.no_grad():
        wanted = module(*examples[0]).numpy()
    got = satchel.load(path).method()(*arrays)
    assert 0 < np.abs(got - wanted).max() < 0.05 * np.abs(wanted).max()


class Uncertain(nn.Module):
    """Dropout that is left on, as people do who ask a network how sure it is."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 256), nn.Linear(256, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(F.dropout(F.relu(self.first(x)), 0.25, training=True))


@pytest.mark.parametrize("by_name", [False, True])
def test_examples_need_no_seed(by_name: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = Uncertain().eval()
    inputs = [torch.randn(2, 16) for _ in range(4)]
    examples = [{"x": x} if by_name else (x,) for x in inputs]
    with pytest.warns(UserWarning, match="random numbers"):
        path = satchel.export(
            module, (inputs[0],), tmp_path / "m.satchel", recipe="int8", calibration=examples
        )
    method = satchel.load(path).method()
    x = inputs[0].numpy()
    answers = np.stack([method(x, np.int64(seed)) for seed in range(200)])
    with torch.no_grad():
        sure = module.second(F.relu(module.first(inputs[0]))).numpy()
    # Dropout scales what it keeps, so that the mean is that of the whole network.
    assert np.abs(answers.mean(0) - sure).max() < 4 * answers.std(0).max() / np.sqrt(200)
    assert answers.std(0).min() > 0.01


class Sizes(nn.Module):
    """Boxes in pixels, and scores: what became of the scores must not hide behind the boxes."""

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x * 1000, self.score(x)


def test_the_ratio_is_that_of_the_output_that_has_lost_the_most(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = Sizes().eval()
    examples = [torch.randn(4, 8) for _ in range(2)]
    path = satchel.export(
        module, (examples[0],), tmp_path / "m.satchel", recipe="int8", calibration=examples
    )
    program = satchel.load(path)
    powers = np.zeros((2, 2))
    for x in examples:
        with torch.no_grad():
            wanted = [y.numpy() for y in module(x)]
        got = program.method().run(x.numpy())
        powers += [[(w**2).sum(), ((g - w) ** 2).sum()] for g, w in zip(got, wanted, strict=True)]
    told = program.metadata["output_snr_db"]
    assert abs(told - worst_decibels(powers)) < 1 and told < 60


def test_examples_in_16_bits(tmp_path: Path) -> None:
    """A module in bfloat16, which numpy does not have, is calibrated as its floats."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)).bfloat16().eval()
    x = torch.randn(6, 8).bfloat16()
    path = satchel.export(module, (x,), tmp_path / "m.satchel", recipe="int8", calibration=[(x,)])
    made = satchel.load(path).method()(x.float().numpy())
    with torch.no_grad():
        wanted = module.float()(x.float()).numpy()
    assert np.abs(made - wanted).max() < 0.05 * np.abs(wanted).max()


def test_ranges_are_the_same_where_little_is_seen_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large graphs are run in parts, so that not all of their values are in memory."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3), nn.Flatten())
    examples = [torch.randn(1, 3, 9, 9) for _ in range(2)]
    files = []
    calibration = sys.modules["satchel.quantize.static.calibrate"]
    for bytes_at_once in (1 << 29, 1000):
        monkeypatch.setattr(calibration, "MOST_AT_ONCE", bytes_at_once)
        path = tmp_path / f"{bytes_at_once}.satchel"
        satchel.export(
            module.eval(), (examples[0],), path, recipe="int8", calibration=examples, name="m"
        )
        program = satchel.load(path)
        files.append((program.method()(examples[1].numpy()), program.metadata["layer_snr_db"]))
    np.testing.assert_array_equal(files[0][0], files[1][0])
    assert files[0][1] == files[1][1]
