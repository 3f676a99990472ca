"""Modules of 8 bits as .pte files: XNNPACK's layers of codes give what the reference gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from test_pte_modules import CASES
from torch import Tensor, nn
from torch.nn import functional

import satchel
from satchel.errors import RecipeError
from satchel.exporter.module_options import ModuleOptions
from satchel.graph.reference import ReferenceInterpreter
from satchel.quantize.static import decibels, signal_to_noise
from satchel.torch.job import prepare_module_export


class Residual(nn.Module):
    """Sums that are limited, joins of different ranges, and moves of codes between layers."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.left = nn.Conv2d(3, 8, 3, 2), nn.Conv2d(8, 8, 3, padding=1)
        self.right, self.last = nn.Conv2d(8, 8, 1), nn.Conv2d(16, 12, 3)
        self.head = nn.Linear(12, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.max_pool2d(functional.relu(self.stem(x)), 2)
        y = functional.relu(self.left(x) + self.right(x))
        y = torch.cat([functional.pad(y, (1, 1, 1, 1)), functional.pad(40 * x, (1, 1, 1, 1))], 1)
        y = self.last(y)[:, :, 1:5] * self.last(y)[:, :, :4]
        return self.head(y.mean((2, 3)))


class Dead(nn.Module):
    """Rows without weights, rows that are all bias, and a result that is a thousandth of what
    is added up."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.second, self.head = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 3)
        with torch.no_grad():
            self.layer.weight[:4] = 0
            self.layer.weight[4:8] *= 1e-9
            self.layer.bias[2:6] = 3.0
            self.second.weight.copy_(-self.layer.weight * 0.9999)
            self.second.bias.copy_(-self.layer.bias * 0.9999)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(x) + self.second(x) + self.layer(x) * self.second(x))


class Block(nn.Module):
    """What ExecuTorch's own export of 8 bits takes too."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.body = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.stem(x))
        x = functional.relu(self.body(x) + x)
        return self.head(functional.adaptive_avg_pool2d(x, 1).flatten(1))


class Silent(nn.Module):
    """Layers, means and sums whose results are always nothing, as in trained models."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.gate = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 1)
        self.silent, self.head = nn.Conv2d(8, 8, 3, groups=8), nn.Linear(8, 4)
        with torch.no_grad():
            self.silent.bias.fill_(-100.0)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.stem(x))
        nothing = functional.relu(self.silent(x))
        gate = functional.hardsigmoid(self.gate(nothing.mean((2, 3), keepdim=True)))
        x = functional.relu(self.stem(torch.zeros_like(x)[:, :3]) * 0 + x[:, :, 2:, 2:])
        return self.head((x * gate + nothing).mean((2, 3)))


MODULES = {
    **CASES,
    "block": (Block, (1, 3, 32, 32)),
    "residual": (Residual, (1, 3, 32, 32)),
    "dead": (Dead, (4, 16)),
    "silent": (Silent, (1, 3, 12, 12)),
}


def run(name: str, tmp_path: Path, open_pte: Any) -> tuple[Any, Any, list[tuple[Tensor, Any]]]:
    """The export, the module, and inputs with what the runtime gives for them."""
    make, shape = MODULES[name]
    torch.manual_seed(0)
    module, inputs = make().eval(), [torch.randn(shape) for _ in range(4)]
    options = ModuleOptions("int8", "executorch")
    job = prepare_module_export(module, (inputs[0],), options, calibration=inputs)
    planned = job.plan().file_size
    graph, arrays = job.portable.graphs[0], dict(job.portable.checkpoint.arrays)
    path = job.run(tmp_path / "m.pte")
    assert path.stat().st_size == planned
    runtime = open_pte(path)
    made = [(x, runtime.forward(x.numpy())) for x in inputs]
    reference = ReferenceInterpreter(lambda weight: arrays[weight.name])

    def wanted(x: Tensor) -> NDArray[Any]:
        return reference.run(graph, {graph.inputs[0].name: x.numpy()})[graph.outputs[0].name]

    return job, (module, wanted), made


@pytest.mark.parametrize("name", MODULES)
def test_codes_are_those_of_the_reference(name: str, tmp_path: Path, open_pte: Any) -> None:
    job, (module, wanted), made = run(name, tmp_path, open_pte)
    told = job.portable.describe({}).to_dict()
    power = [0.0, 0.0]
    for x, got in made:
        want = wanted(x)
        # A sum that falls between two codes may be rounded either way.
        assert np.abs(got - want).max() <= 0.02 * np.abs(want).max()
        with torch.no_grad():
            pair = signal_to_noise(module(x).numpy(), got)
        power = [a + b for a, b in zip(power, pair, strict=True)]
    assert decibels(*power) > min(told["output_snr_db"] - 6, 30)
    ops = {node.op for node in job.portable.graphs[0].nodes}
    assert ops & {"qconv2d", "qlinear"} and not told["kept_in_float"]


def test_layers_of_8_bits_are_a_quarter(tmp_path: Path, open_pte: Any) -> None:
    make, shape = MODULES["mobilenet_v3"]
    module, x = make().eval(), torch.randn(shape)
    sizes = {
        recipe: satchel.export(
            module, (x,), tmp_path / f"{recipe}.pte", target="executorch", recipe=recipe, **more
        )
        .stat()
        .st_size
        for recipe, more in {"fp32": {}, "int8": {"calibration": [x]}}.items()
    }
    assert sizes["int8"] < 0.3 * sizes["fp32"]


@pytest.mark.parametrize("name", ["block", "patches"])
def test_it_is_as_near_as_executorchs_own(name: str, tmp_path: Path, open_pte: Any) -> None:
    """The same module and examples through its quantiser and its lowering."""
    pt2e = pytest.importorskip("torchao.quantization.pt2e.quantize_pt2e")
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )
    from executorch.exir import to_edge_transform_and_lower

    _, (module, _), made = run(name, tmp_path, open_pte)
    inputs = [x for x, _ in made]
    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(True))
    prepared = pt2e.prepare_pt2e(torch.export.export(module, (inputs[0],)).module(), quantizer)
    for x in inputs:
        prepared(x)
    converted = torch.export.export(pt2e.convert_pt2e(prepared), (inputs[0],))
    lowered = to_edge_transform_and_lower(converted, partitioner=[XnnpackPartitioner()])
    theirs = tmp_path / "theirs.pte"
    theirs.write_bytes(lowered.to_executorch().buffer)
    peer = open_pte(theirs)
    noise = {"ours": [0.0, 0.0], "theirs": [0.0, 0.0]}
    for x, got in made:
        with torch.no_grad():
            exact = module(x).numpy()
        for who, output in (("ours", got), ("theirs", peer.forward(x.numpy()))):
            for place, power in enumerate(signal_to_noise(exact, output)):
                noise[who][place] += power
    assert decibels(*noise["ours"]) > decibels(*noise["theirs"]) - 1


def test_what_is_refused_says_what_to_do() -> None:
    x = (torch.randn(2, 4),)
    with pytest.raises(RecipeError, match=r"not 8a8w.*fp32 or int8"):
        satchel.export(nn.Linear(4, 2).eval(), x, target="executorch", recipe="8a8w")
    with pytest.raises(RecipeError, match="for some layers.*least-snr|for some layers.*least_snr"):
        overrides = {"weight": "fp32"}
        satchel.export(
            nn.Linear(4, 2).eval(), x, target="executorch", recipe="int8", overrides=overrides
        )
