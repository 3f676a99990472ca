"""How weights get to a device: shared with the host where they can be, else through the ring."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import satchel

WIDTH = 4096  # of a layer with 64 MB of weights: more than all pieces of the ring together

_RUN = """
import json, sys
import numpy as np
from satchel.runtime.program import Program

def own_bytes():
    lines = open("/proc/self/smaps_rollup").read().splitlines()
    return sum(int(x.split()[1]) << 10 for x in lines if x.startswith("Private_Dirty"))

program = Program(sys.argv[1], target="vulkan")
before = own_bytes()
instance = program.instance(1)
parts = sorted({part.executor for part in instance.parts})
x = np.random.default_rng(0).standard_normal((2, int(sys.argv[2])), np.float32)
made = instance.method("forward")(x)
print(json.dumps({"parts": parts, "made": made.tolist(), "bytes": own_bytes() - before}))
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 3), nn.Linear(3, 5)).eval()
    path = tmp_path_factory.mktemp("weights") / "wide.satchel"
    return satchel.export(layers, (torch.zeros(2, WIDTH),), path, recipe="fp32")


def run(program: Path, without: str = "") -> dict[str, Any]:
    environment = {**os.environ, "SATCHEL_VULKAN_WITHOUT": without}
    words = [sys.executable, "-c", _RUN, str(program), str(WIDTH)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["parts"] == ["vulkan"]
    return found


def test_copied_and_shared_weights_are_the_same(program: Path, device: dict[str, Any]) -> None:
    copied, shared = run(program, "host_memory"), run(program)
    assert copied["made"] == shared["made"]
    x = np.random.default_rng(0).standard_normal((2, WIDTH), np.float32)
    by_the_cpu = satchel.load(program).method()(x)
    assert np.abs(by_the_cpu - np.array(copied["made"])).max() < 1e-5
    if "shared memory" not in device["features"]:
        pytest.skip(f"{device['name']} has memory of its own, or none that it can be given")
    if device["type"] == "software":  # its memory is this process's
        assert copied["bytes"] - shared["bytes"] > 0.9 * 4 * WIDTH * WIDTH
