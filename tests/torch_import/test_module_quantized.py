"""Modules that PT2E or torchao has quantised: the numbers of the quantised module."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.ao.quantization.fx._decomposed
from torch import Tensor, nn

import satchel
from support.compare import assert_close

codes: Any = torch.ops.quantized_decomposed


class Quantised(nn.Module):
    """A convolution and a layer as ``convert_pt2e`` leaves them."""

    def __init__(self) -> None:
        super().__init__()
        for name, shape in (("kernel", (8, 3, 3, 3)), ("weight", (5, 8))):
            numbers = torch.randint(-128, 128, shape, dtype=torch.int8)
            self.register_buffer(name, numbers)
            self.register_buffer(f"{name}_scale", torch.rand(shape[0]) * 0.01 + 0.001)
            self.register_buffer(f"{name}_zero", torch.randint(-3, 4, (shape[0],)))
        self.bias = nn.Parameter(torch.randn(8))

    def _weight(self, name: str) -> Tensor:
        own = (getattr(self, name), getattr(self, f"{name}_scale"), getattr(self, f"{name}_zero"))
        made: Tensor = codes.dequantize_per_channel(*own, 0, -128, 127, torch.int8)
        return made

    def forward(self, x: Tensor) -> Tensor:
        def rounded(y: Tensor, scale: float, zero: int) -> Tensor:
            steps = scale, zero, 0, 255, torch.uint8
            made: Tensor = codes.dequantize_per_tensor(codes.quantize_per_tensor(y, *steps), *steps)
            return made

        x = rounded(x, 0.03, 126)
        x = torch.relu(nn.functional.conv2d(x, self._weight("kernel"), self.bias))
        x = rounded(x, 0.05, 0).mean((2, 3))
        return nn.functional.linear(rounded(x, 0.02, 3), self._weight("weight"))


def test_pt2e(tmp_path: Path) -> None:
    torch.manual_seed(2)
    module, x = Quantised().eval(), torch.randn(2, 3, 8, 8)
    path = satchel.export(module, (x,), tmp_path / "m.satchel")
    made = satchel.load(path).method()(x.numpy())
    with torch.no_grad():
        wanted = module(x).numpy()
    # A number on the edge between two codes may fall to either side.
    assert np.median(np.abs(made - wanted)) < 1e-5
    assert_close(made, wanted, 2e-2)


def test_codes_are_kept(tmp_path: Path) -> None:
    """Layers multiply whole numbers, and the file holds the module's codes, bit for bit."""
    torch.manual_seed(2)
    numbers = torch.randint(-128, 128, (32, 64), dtype=torch.int8)
    scales, bias = torch.rand(32) * 0.01 + 0.001, torch.randn(32)

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("codes", numbers)
            self.register_buffer("scales", scales)
            self.register_buffer("zeros", torch.zeros(32, dtype=torch.int64))
            self.last = nn.Linear(32, 8)

        def forward(self, x: Tensor) -> Tensor:
            own = (self.codes, self.scales, self.zeros, 0, -128, 127, torch.int8)
            made = nn.functional.linear(x, codes.dequantize_per_channel(*own), bias)
            result: Tensor = self.last(torch.relu(made))
            return result

    module, x = Layer().eval(), torch.randn(5, 64)
    path = satchel.export(module, (x,), tmp_path / "m.satchel", recipe="keep")
    program = satchel.load(path)
    with torch.no_grad():
        assert_close(program.method()(x.numpy()), module(x).numpy(), 1e-4)
    (stored,) = [w for w in program.weights if w["encoding"].startswith("matrix_q8")]
    assert program.weight(stored["name"]).tolist() == numbers.tolist()
    floats = satchel.export(module, (x,), tmp_path / "floats.satchel")
    assert program.size < satchel.load(floats).size


class Dynamic(nn.Module):
    """As torchao multiplies numbers of 8 bits, with steps that suit each input."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randint(-127, 128, (32, 2048), dtype=torch.int8))

    def forward(self, x: Tensor) -> Tensor:
        step = x.abs().amax(1, keepdim=True) / 127
        whole = torch.round(x / step).to(torch.int8)
        return torch._int_mm(whole, self.weight.t()).float() * step


def test_products_of_bytes_are_exact(tmp_path: Path) -> None:
    torch.manual_seed(2)
    module, x = Dynamic().eval(), torch.randn(18, 2048)
    path = satchel.export(module, (x,), tmp_path / "m.satchel")
    assert_close(satchel.load(path).method()(x.numpy()), module(x).numpy(), 1e-6)


@pytest.mark.parametrize("name", ["Int8WeightOnlyConfig", "Int8DynamicActivationInt8WeightConfig"])
def test_torchao(name: str, tmp_path: Path) -> None:
    quantization = pytest.importorskip("torchao.quantization")
    torch.manual_seed(2)
    module = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 32)).eval()
    quantization.quantize_(module, getattr(quantization, name)())
    x = torch.randn(24, 64)
    path = satchel.export(module, (x,), tmp_path / "m.satchel")
    with torch.no_grad():
        wanted = module(x).numpy()
    assert_close(satchel.load(path).method()(x.numpy()), wanted, 1e-2)
