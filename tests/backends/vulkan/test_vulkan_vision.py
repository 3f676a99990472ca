"""Vision models on a Vulkan device: torch's results, in floats and in static integers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import satchel  # noqa: E402
from satchel.runtime.program import Program  # noqa: E402
from support.compare import relative_difference  # noqa: E402
from support.mobilenet_v3 import MobileNetV3Small  # noqa: E402


class Bottlenecks(torch.nn.Module):  # type: ignore[name-defined,misc]
    """As in ResNet, with groups, and a transposed convolution behind it."""

    def __init__(self) -> None:
        super().__init__()
        nn = torch.nn
        self.stem = nn.Conv2d(3, 20, 7, 2, 3)
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.narrow = nn.Conv2d(20, 8, 1)
        self.grouped = nn.Conv2d(8, 8, 3, padding=2, dilation=2, groups=2)
        self.wide = nn.Conv2d(8, 20, 1)
        self.mean = nn.AvgPool2d(2, ceil_mode=True)
        self.up = nn.ConvTranspose2d(20, 6, 3, 2, 1)
        self.head = nn.Linear(6, 11)

    def forward(self, x: Any) -> Any:
        x = self.pool(torch.relu(self.stem(x)))
        inner = torch.relu(self.grouped(torch.relu(self.narrow(x))))
        x = torch.relu(self.wide(inner) + x)
        return self.head(torch.nn.functional.gelu(self.up(self.mean(x))).mean((2, 3)))


class Patches(torch.nn.Module):  # type: ignore[name-defined,misc]
    """As a ViT: patches, a token of its own, positions, layers of an encoder."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        nn = torch.nn
        self.patches = nn.Conv2d(3, width, 4, 4)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, 65, width) * 0.1)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.inner, self.outer = nn.Linear(width, 48), nn.Linear(48, width)
        self.head = nn.Linear(width, 11)

    def forward(self, x: Any) -> Any:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.positions
        y = self.first(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        x = x + self.outer(torch.nn.functional.gelu(self.inner(self.second(x))))
        return self.head(x[:, 0])


MODELS = {
    "mobilenet": lambda: MobileNetV3Small(11),
    "bottlenecks": Bottlenecks,
    "patches": Patches,
}
LONG = pytest.param("mobilenet", marks=pytest.mark.slow)  # many pipelines, compiled by the CPU


def made(name: str) -> tuple[Any, Any]:
    torch.manual_seed(0)
    module = MODELS[name]().eval()
    return module, torch.randn(2, 3, 32, 32)


def whole_on_device(path: Path) -> Any:
    instance = Program(path, target="vulkan").instance(threads=1)
    assert {part.executor for part in instance.parts} == {"vulkan"}, instance.refusals
    return instance.method("forward")


@pytest.mark.parametrize(("recipe", "tolerance"), [("fp32", 1e-5), ("fp16", 3e-3)])
@pytest.mark.parametrize("name", [LONG, "bottlenecks", "patches"])
def test_floats_are_torchs(
    name: str, recipe: str, tolerance: float, device: dict[str, Any], tmp_path: Path
) -> None:
    module, x = made(name)
    with torch.no_grad():
        want = module(x).numpy()
    path = satchel.export(module, (x,), tmp_path / "p.satchel", recipe=recipe)
    got = whole_on_device(path).run(x.numpy())[0]
    assert relative_difference(got, want) < tolerance


@pytest.mark.parametrize(
    ("name", "without"),
    [
        pytest.param("mobilenet", "", marks=pytest.mark.slow),
        ("bottlenecks", ""),
        ("bottlenecks", "integer_dot"),
        ("patches", ""),
    ],
)
def test_static_integers_are_the_cpus(
    name: str, without: str, device: dict[str, Any], tmp_path: Path, monkeypatch: Any
) -> None:
    """Layers multiply the same whole numbers; powers and roots may move a code by one."""
    module, x = made(name)
    path = satchel.export(module, (x,), tmp_path / "p.satchel", recipe="int8", calibration=[(x,)])
    want = Program(path, target="cpu").method()(x.numpy())
    monkeypatch.setenv("SATCHEL_VULKAN_WITHOUT", without)
    got = whole_on_device(path).run(x.numpy())[0]
    assert relative_difference(got, want) < (1e-5 if name == "bottlenecks" else 2e-2)
    with torch.no_grad():
        floats = module(x).numpy()
    assert np.abs(got - floats).max() < 0.25 * np.abs(floats).max()
