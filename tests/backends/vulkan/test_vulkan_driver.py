"""What lies around the work: pipelines on disk, a machine without Vulkan, commands."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import satchel
from satchel import _native
from satchel.cli.main import main
from satchel.errors import ExecutionError
from satchel.runtime.program import Program
from support.tiny_llm import write_tiny_llm


def _export(folder: Path, **options: Any) -> Path:
    if not (folder / "tiny").exists():
        write_tiny_llm(folder / "tiny")
    name = "-".join(map(str, options.values()))
    return satchel.export(
        folder / "tiny", folder / f"{name}.satchel", context=160, prefill_ar_len=80, **options
    )


def test_pipelines_are_kept_and_damaged_ones_are_left(
    device: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SATCHEL_CACHE", str(tmp_path / "cache"))
    program = _export(tmp_path, recipe="fp16")

    def logits() -> Any:
        return Program(program, target="vulkan").instance().method("kv_forward").run([5], [0])[0]

    first = logits()
    (kept,) = (tmp_path / "cache" / "vulkan").iterdir()
    good = kept.read_bytes()
    assert kept.suffix == ".pipelines" and len(good) >= 32 + 32
    assert (logits() == first).all()
    for damaged in (b"", good[:40], good[:-1] + bytes([good[-1] ^ 1]), bytes(len(good))):
        kept.write_bytes(damaged)
        assert (logits() == first).all()
        assert kept.read_bytes()[:32] != damaged[:32] or damaged[:32] == good[:32]


def test_a_folder_that_cannot_be_written_is_no_matter(
    device: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("SATCHEL_CACHE", str(tmp_path / "file"))
    program = _export(tmp_path, recipe="fp16")
    assert Program(program, target="vulkan").instance().method("kv_forward").run([5], [0])[0].any()


def test_without_a_driver_it_says_what_is_missing(tmp_path: Path) -> None:
    """And the CPU still works."""
    program = _export(tmp_path, recipe="fp16")
    environment = {**os.environ, "VK_ICD_FILENAMES": "/none.json", "VK_DRIVER_FILES": "/none.json"}

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "satchel", *command],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    words = ["run", str(program), "--raw", "-p", "hi", "--max-new-tokens", "2"]
    refused = run(*words, "--target", "vulkan")
    assert refused.returncode != 0 and "--target cpu" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert run(*words, "--target", "cpu").returncode == 0
    report = json.loads(run("doctor", "--json").stdout)["vulkan"]
    assert report["devices"] == [] and "Vulkan" in report["missing"]


def test_a_device_without_any_feature(weak: Path, tmp_path: Path) -> None:
    program = _export(tmp_path, recipe="8da4w", kv_bits=8)
    script = """
import sys
import numpy as np
from satchel.runtime.program import Program
logits = []
for target in ("vulkan", "cpu"):
    instance = Program(sys.argv[1], target=target).instance()
    method = instance.method("prefill_forward")
    logits.append(method.run(list(range(3, 9)), list(range(6)), [5], [0] * 6)[0])
    if target == "vulkan":
        assert "SwiftShader" in instance.kernels, instance.kernels
        assert {part.executor for part in instance.parts} == {"vulkan"}
print(float(np.abs(logits[0] - logits[1]).max() / np.abs(logits[1]).max()))
"""
    command = [sys.executable, "-c", script, str(program)]
    environment = {**os.environ, "VK_ICD_FILENAMES": str(weak), "VK_DRIVER_FILES": str(weak)}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 2e-2


def test_a_device_that_does_not_answer_is_left_alone(tmp_path: Path, device: Any) -> None:
    """In a process of its own, whose patience ends after the weights are there."""
    program = _export(tmp_path, recipe="fp16")
    script = """
import os, sys
from satchel.errors import ExecutionError
from satchel.runtime.program import Program
instance = Program(sys.argv[1], target="vulkan").instance()
tokens = list(range(3, 83))
want = Program(sys.argv[1], target="cpu").instance().method("kv_forward").run([5], [0])[0]
os.environ["SATCHEL_VULKAN_PATIENCE"] = "0"
for said in ("does not answer", "lost"):
    try:
        instance.method("prefill_forward").run(tokens, list(range(80)), [79], [0] * 80)
    except ExecutionError as error:
        assert said in str(error) and "target cpu" in str(error), error
    else:
        raise AssertionError("there was an answer")
del instance
again = Program(sys.argv[1], target="cpu").instance().method("kv_forward").run([5], [0])[0]
assert (again == want).all()
print("done")
"""
    command = [sys.executable, "-c", script, str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_a_device_that_is_too_small_is_told_before_anything_is_copied(
    device: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Program(_export(tmp_path, recipe="fp16"), target="vulkan")
    small = {**device, "memory_left_bytes": 10_000}
    monkeypatch.setattr(_native.vulkan, "devices", lambda: [small])
    with pytest.raises(ExecutionError, match=f"weights, and {re.escape(device['name'])}"):
        program.instance()


def test_commands_know_the_device(
    device: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor"]) in (0, 1)
    assert f"{device['name']} (" in capsys.readouterr().out
    program = _export(tmp_path, recipe="fp16", target="vulkan")
    assert main(["inspect", str(program), "--target", "vulkan", "--json"]) == 0
    placement = json.loads(capsys.readouterr().out)["placement"]
    assert placement["nodes"]["vulkan"] > 0 and not placement["fallbacks"]
    words = ["run", str(program), "--raw", "-p", "hi", "--max-new-tokens", "4", "--json"]
    texts = []
    for target in ("vulkan", "cpu"):
        assert main([*words, "--target", target]) == 0
        texts.append(json.loads(capsys.readouterr().out)["text"])
    assert texts[0] == texts[1]


def test_bench_measures_the_device_that_was_asked_for(
    device: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = _export(tmp_path, recipe="fp16")
    words = ["bench", str(program), "--prompt-tokens", "8", "--new-tokens", "2", "--runs", "1"]
    assert main([*words, "--target", "vulkan", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["kernels"].startswith(f"vulkan on {device['name']}")
    assert found["emulated"] == (device["type"] == "software")
    assert 0 < found["device_memory_bytes"] < 1 << 28


def test_a_chosen_size_of_the_caches_does_not_lead_to_the_cpu(
    device: dict[str, Any], tmp_path: Path
) -> None:
    program = Program(_export(tmp_path, recipe="fp16"), target="vulkan")
    instance = satchel.LLM(program, cache_memory=1 << 20).session.instance
    assert {part.executor for part in instance.parts} == {"vulkan"}
    usage = instance.cache_usage
    assert usage.most_pages * usage.page_bytes <= 1 << 20


def test_what_falls_to_the_cpu_is_told(device: dict[str, Any], tmp_path: Path) -> None:
    import numpy as np

    from satchel.graph.builder import GraphBuilder
    from support.arrays import normal
    from support.programs import write_program

    b = GraphBuilder("forward")
    x = b.input("x", (4, 8))
    b.output(b.relu(b.node("erf", b.affine(x, scale=2.0))), "out")
    program = Program(write_program(tmp_path / "p.satchel", [b.finish()]), target="vulkan")
    instance = program.instance()
    assert [part.executor for part in instance.parts] == ["vulkan", "cpu", "vulkan"]
    assert [r[:3] for r in instance.refusals] == [
        ("vulkan", "erf", "the GPU has no shader for erf")
    ]
    x_now = normal(4, 8, seed="x")
    want = Program(program.path, target="cpu").method()(x_now)
    np.testing.assert_allclose(instance.method("forward")(x_now), want, rtol=1e-6)


def test_a_forked_process_is_without_the_device(device: dict[str, Any], tmp_path: Path) -> None:
    """None of a driver's threads are there: what waits for them waits for ever."""
    program = _export(tmp_path, recipe="fp16")
    script = """
import os, sys
from satchel.errors import ExecutionError
from satchel.llm.session import Session
from satchel.runtime.program import Program

def session(target):
    return Session(Program(sys.argv[1], target=target), threads=2)

here = session("vulkan")
here.feed([1, 2, 3])
want = session("cpu").feed([1, 2, 3])
child = os.fork()
if child == 0:
    for use in (lambda: here.feed([4]), lambda: session("vulkan")):
        try:
            use()
        except ExecutionError as error:
            assert "forked" in str(error) and "target cpu" in str(error), error
        else:
            raise AssertionError("it was used")
    assert (session("cpu").feed([1, 2, 3]) == want).all()
    print("child")
    sys.exit()  # with all that it has inherited
assert os.waitpid(child, 0)[1] == 0
assert here.feed([4]).any()
print("parent")
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(program)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "child\nparent\n", "")
