"""A module's export is planned by the same pipeline as a language model's."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import pytest
import torch
from torch import nn

from satchel.runtime.program import Program
from satchel.torch.job import ModuleOptions, prepare_module_export


@pytest.mark.parametrize("recipe", ["fp32", "fp16", "8a8w", "int8"])
def test_the_plan_is_what_is_written(recipe: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 64, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10)).eval()
    x = torch.randn(1, 3, 8, 8)
    module(x)
    export = prepare_module_export(
        module, (x,), ModuleOptions(recipe), calibration=[x] if recipe == "int8" else None
    )
    plan = export.plan()
    assert not list(tmp_path.iterdir()) and plan.methods == ("forward",)
    assert plan.parameters == sum(p.numel() for p in module.parameters())
    program = Program(export.run(tmp_path / "p.satchel"))
    assert len(program.weights) == plan.weights
    assert abs(program.size - plan.file_size) < 64  # the digits of the weights' errors
    assert plan.peak_memory > 10_000_000


def test_weights_go_once_they_are_packed() -> None:
    """They are part of circles in torch's program, and a compiler that follows needs the room."""
    module = nn.Sequential(nn.Linear(8, 8)).eval()
    gone = weakref.ref(module[0].weight)
    gc.disable()
    try:
        export = prepare_module_export(module, (torch.zeros(1, 8),), ModuleOptions("fp16"))
        del module
        assert gone() is not None
        export._release_weights()
        assert gone() is None
    finally:
        gc.enable()
