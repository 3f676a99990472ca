"""A third backend from one folder: nothing else knows of it, and all commands work with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from halfchip import OPS, HalfChip

import satchel
from satchel import backends
from satchel.benchmark.profile import require_profile
from satchel.cli.main import main
from satchel.errors import ChecksumError, ConfigError, ProgramFormatError
from satchel.llm.session import Session
from satchel.runtime.program import Program
from support.tiny_llm import write_tiny_llm

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(backends, "_loaded", dict(backends._loaded))
    backends.register(HalfChip)
    yield


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llm(tmp_path_factory.mktemp("half") / "tiny")


@pytest.fixture
def program(checkpoint: Path) -> Path:
    output = checkpoint.parent / "half.satchel"
    if not output.exists():
        target = satchel.find_target("half", note="of a test")
        satchel.export(checkpoint, output, target=target, context=64)
    return output


def run_json(capsys: pytest.CaptureFixture[str], *command: object) -> Any:
    assert main([*map(str, command), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_half_of_the_ops_are_its_own(program: Path) -> None:
    opened = Program(program, verify=True)
    placement = opened.metadata["placement"]
    assert placement["nodes"]["half"] > 0 < placement["nodes"]["cpu"]
    for entry in placement["fallbacks"]:
        assert entry["op"] not in OPS and "half chip has no" in entry["reason"]
    names = {m["name"] for m in opened.methods}
    kinds = {name.rpartition(".")[2] for name in names if name.startswith("kv_forward.")}
    assert "kv_forward" in names and kinds == {"half", "cpu"}
    assert opened.payload_names() == ["parts.json", "weights.bin"]
    assert opened.metadata["payloads"]["half"]["note"] == "of a test"


def test_its_logits_are_those_of_the_cpu(program: Path) -> None:
    prompt, logits = [72, 101, 108, 108, 111], {}
    for target in ("half", "cpu"):
        session = Session(Program(program, target=target))
        assert session.instance.kernels.startswith("half") == (target == "half")
        logits[target] = [session.feed(prompt), session.feed([32])]
    np.testing.assert_allclose(logits["half"], logits["cpu"], atol=0.02)
    assert np.array_equal(*(np.argmax(logits[target], axis=1) for target in logits))


def test_ops_that_cannot_be_timed(program: Path) -> None:
    with pytest.raises(ConfigError, match="one by one"):
        require_profile(Program(program))


def test_the_commands(
    checkpoint: Path, program: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "own.satchel"
    plan = run_json(capsys, "export", checkpoint, "--target", "half", "--plan")["plan"]
    run_json(capsys, "export", checkpoint, "--target", "half", "--note", "hi", "-o", output)
    stored = Program(output).metadata["payloads"]["half"]
    assert stored["note"] == "hi" and plan["payloads"]["half"]["bytes"] > 0
    answer = ["--raw", "--prompt", "Hello", "--max-new-tokens", 6]
    told = [run_json(capsys, "run", program, *answer, "--target", t) for t in ("half", "cpu")]
    assert told[0]["tokens"] == told[1]["tokens"]
    assert [t["kernels"].startswith("half") for t in told] == [True, False]
    assert main(["inspect", str(program)]) == 0
    shown = capsys.readouterr().out
    assert "target     half" in shown and "nodes on half" in shown
    text = tmp_path / "text.txt"
    text.write_text("Pack a model once. " * 8)
    phases = run_json(
        capsys, "eval", program, "--text", text, "--window", 32, "--phases", "qdq,device"
    )["phases"]
    assert abs(phases["device"]["ppl"] / phases["qdq"]["ppl"] - 1) < 0.01
    bench = ["--prompt-tokens", 8, "--new-tokens", 2, "--runs", 1, "--warmup", 0]
    assert run_json(capsys, "bench", program, *bench)["kernels"].startswith("half")
    assert main(["bench", str(program), "--profile"]) == 1
    assert "is for half, whose ops cannot be timed" in capsys.readouterr().err
    assert run_json(capsys, "doctor")["half"] == {"chips": 1}
    assert main(["doctor"]) == 0 and "half chip in numpy" in capsys.readouterr().out
    assert backends.title_of("half") == "Half chip"


def test_a_module(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    layers = [torch.nn.Conv2d(3, 8, 3), torch.nn.Softmax(1), torch.nn.Flatten()]
    module = torch.nn.Sequential(*layers, torch.nn.Linear(8 * 36, 4), torch.nn.ReLU()).eval()
    x = torch.randn(1, 3, 8, 8)
    path = satchel.export(module, (x,), tmp_path / "m.satchel", target="cpu,half")
    with torch.no_grad():
        exact = module(x).numpy()
    for target in ("half", "cpu"):
        opened = Program(path, target=target)
        np.testing.assert_allclose(opened.method("forward")(x.numpy()), exact, atol=1e-5)


def test_what_goes_wrong(program: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="note is for half, and the target is cpu"):
        satchel.find_target("cpu", note="hi")
    with pytest.raises(ConfigError, match="no target 'half:x'"):
        satchel.find_target("half:x")
    opened = Program(program)
    with pytest.raises(ProgramFormatError, match="there is no other.bin for half"):
        opened.payload("other.bin")
    info = next(w for w in opened.weights if w["name"] == "half/weights.bin")
    data = bytearray(program.read_bytes())
    data[info["offset"]] ^= 1
    (tmp_path / "bad.satchel").write_bytes(data)
    with pytest.raises(ChecksumError, match="the bytes of weights.bin are not those"):
        Program(tmp_path / "bad.satchel").instance()


def test_another_package_brings_it(checkpoint: Path, tmp_path: Path) -> None:
    """Found by its entry point, in a process where nobody registered it."""
    package = tmp_path / "half_chip-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: half-chip\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[satchel.targets]\nhalf = halfchip:HalfChip\n")
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parent)])
    environment = os.environ | {"PYTHONPATH": path, "SATCHEL_CACHE": str(tmp_path)}
    output = tmp_path / "o.satchel"
    command = ["export", str(checkpoint), "--target", "half", "--note", "found", "-o", str(output)]
    made = subprocess.run(
        [sys.executable, "-m", "satchel", *command],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    assert Program(output).metadata["payloads"]["half"]["note"] == "found"


def test_it_is_the_example_in_the_docs() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    assert "tests/backends/halfchip" in text
    source = (Path(__file__).parent / "halfchip.py").read_text()
    assert len(source.splitlines()) < 120
