"""Devices with memory for some layers only, and what bench tells of a device."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import satchel
from satchel import _native
from satchel.backends.vulkan import fitting_layers
from satchel.cli.main import main
from satchel.errors import ExecutionError
from satchel.llm.session import Session
from satchel.remarks import Remark
from satchel.runtime.program import Program
from support.compare import relative_difference
from support.tiny_llm import write_tiny_llm


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("layers")
    checkpoint = write_tiny_llm(folder / "tiny", num_hidden_layers=3)
    return satchel.export(
        checkpoint, folder / "p.satchel", recipe="fp32", context=64, prefill_ar_len=32
    )


def logits_on(path: Path, target: str) -> tuple[Session, Any]:
    session = Session(Program(path, target=target))
    return session, np.stack(
        [session.feed([3, 14, 15, 9, 26]), session.feed([5]), session.feed([8])]
    )


@pytest.mark.parametrize("layers", [0, 1, 2, 3])
def test_some_layers_run_on_the_device_and_the_others_on_the_cpu(
    layers: int, path: Path, device: dict[str, Any]
) -> None:
    session, got = logits_on(path, f"vulkan:0:{layers}")
    executors = [p.executor for p in session.instance.parts if p.method == "kv_forward"]
    assert executors == (["vulkan"] if layers == 3 else ["vulkan", "cpu"]), executors
    if layers < 3:
        assert any("beyond the first" in r.reason for r in session.instance.refusals)
    assert relative_difference(got, logits_on(path, "cpu")[1]) < 1e-5


def test_layers_that_do_not_fit_stay_on_the_cpu(
    path: Path, device: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Told before anything is copied; memory for none of them is an error."""
    program = Program(path, target="vulkan")
    sizes = {w["name"]: w["codes_size"] + w["scales_size"] for w in program.weights}
    layer = sum(size for name, size in sizes.items() if ".1." in name)
    outside = sum(size for name, size in sizes.items() if "layers" not in name)
    small = {**device, "memory_left_bytes": int((outside + 2.5 * layer) / 0.45)}
    assert (
        fitting_layers(program, small) is None or sum(sizes.values()) > small["memory_left_bytes"]
    )
    tight = {**device, "memory_left_bytes": sum(sizes.values()) - 1}
    monkeypatch.setattr(_native.vulkan, "devices", lambda: [tight])
    fitting = int((tight["memory_left_bytes"] * 0.45 - outside) // layer)
    if fitting < 1:
        with pytest.raises(ExecutionError, match="of memory"):
            program.instance()
        return
    with pytest.warns(Remark, match=f"the first {fitting} of 3 layers"):
        instance = program.instance()
    assert {p.executor for p in instance.parts} == {"vulkan", "cpu"}


def test_the_command_takes_layers(
    path: Path, device: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["run", str(path), "--raw", "-p", "hi", "--max-new-tokens", "4", "--json"]
    texts = []
    for more in (["--target", "vulkan", "--gpu-layers", "1"], ["--target", "cpu"]):
        assert main([*words, *more]) == 0
        texts.append(json.loads(capsys.readouterr().out)["text"])
    assert texts[0] == texts[1]
    assert main([*words, "--target", "cpu", "--gpu-layers", "1"]) != 0
    assert "choose a GPU" in capsys.readouterr().err


def test_bench_tells_the_devices_own_limits_and_times(
    path: Path, device: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["bench", str(path), "--target", "vulkan", "--prompt-tokens", "8", "--new-tokens", "4"]
    assert main([*words, "--runs", "1", "--warmup", "0", "--profile", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    limits = _native.vulkan.measure(0)
    assert 0.1 < result["read_bandwidth_bytes_s"] / limits["read_bytes_s"] < 10
    assert (result["multiply_adds_s"] or 0) > 0 and 0 < result["arithmetic_share"] < 1
    decode = result["profile"]["decode"]
    ops = {row["op"]: row for row in decode["ops"]}
    assert ops["linear"]["calls"] == 3 * (3 * 7 + 1)
    assert 0 < sum(row["seconds"] for row in decode["ops"]) < decode["seconds"]
    assert any("x" in row["layer"] for row in decode["layers"])


def test_what_the_cpu_runs_is_told(tmp_path: Path, device: dict[str, Any]) -> None:
    class Sums(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(x).cumsum(0) + x.sort(1).values

    x = torch.randn(4, 6)
    path = satchel.export(Sums().eval(), (x,), tmp_path / "sums.satchel", recipe="fp32")
    program = Program(path, target="vulkan")
    with pytest.warns(Remark, match=r"nodes run on the CPU: the GPU has no shader for .*inspect"):
        instance = program.instance()
    got = instance.method("forward")(x.numpy())
    np.testing.assert_allclose(got, Sums()(x).numpy(), rtol=1e-5, atol=1e-6)
