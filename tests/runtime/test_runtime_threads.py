"""Convolutions have the same bits with any number of threads, however the work is shared out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from satchel.graph.builder import GraphBuilder
from satchel.graph.ir import Graph
from satchel.runtime.program import load
from support.arrays import normal
from support.programs import write_program

# The image [height, width, channels], the outputs, and the window.
LAYERS: dict[str, tuple[tuple[int, int, int], int, dict[str, Any]]] = {
    # 64 of Winograd's tiles: by tiles with up to four threads, by outputs with more. 4: by outputs.
    "winograd": ((30, 30, 33), 70, {"kernel": (3, 3), "padding": (1, 1, 1, 1)}),
    "winograd_outputs": ((7, 7, 48), 70, {"kernel": (3, 3), "padding": (1, 1, 1, 1)}),
    "point": ((29, 27, 40), 50, {"kernel": (1, 1)}),
    "many_outputs": ((5, 7, 32), 600, {"kernel": (1, 1)}),
    "depthwise": ((33, 20, 24), 24, {"kernel": (3, 3), "padding": (1, 1, 1, 1), "groups": 24}),
    "panel": ((31, 18, 20), 33, {"kernel": (3, 3), "stride": (2, 2)}),
}


def layer(name: str) -> Graph:
    (height, width, channels), outputs, window = LAYERS[name]
    b = GraphBuilder("forward")
    cols = window["kernel"][0] * window["kernel"][1] * channels // window.get("groups", 1)
    x = b.input("x", (1, height, width, channels))
    y = b.node("conv2d", x, b.weight("w", (outputs, cols)), b.weight("bias", (outputs,)), **window)
    b.output(y, "y")
    return b.finish()


@pytest.mark.parametrize("name", list(LAYERS))
def test_same_bits_with_any_number_of_threads(tmp_path: Path, name: str) -> None:
    (height, width, channels), outputs, window = LAYERS[name]
    kernel, groups = window["kernel"], window.get("groups", 1)
    weight = normal(outputs, kernel[0] * kernel[1] * channels // groups, seed=1)
    weights = {"w": weight, "bias": normal(outputs, seed=2)}
    program = load(write_program(tmp_path / "p.satchel", [layer(name)], weights))
    x = normal(1, height, width, channels, seed=3)
    alone = np.asarray(program.instance(1).method("forward")(x))
    expected = torch.nn.functional.conv2d(
        torch.from_numpy(x).permute(0, 3, 1, 2),
        torch.from_numpy(weight).reshape(outputs, *kernel, -1).permute(0, 3, 1, 2),
        torch.from_numpy(weights["bias"]),
        stride=window.get("stride", (1, 1)),
        padding=window.get("padding", (0,))[0],
        groups=groups,
    )
    np.testing.assert_allclose(alone, expected.permute(0, 2, 3, 1).numpy(), rtol=1e-4, atol=1e-4)
    for threads in (2, 3, 8):
        shared = program.instance(threads).method("forward")(x)
        np.testing.assert_array_equal(np.asarray(shared), alone)
