"""satchel-run for 64-bit Arm, under an emulator: a real conversation. Minutes, so -m slow runs it.

Another build of the runner is tried with SATCHEL_ARM_RUNNER=build/runner-musl-aarch64/satchel-run.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import satchel
from arm.kernel_program import ARM_COMPILER, EMULATOR, build, need
from support.smollm2 import find_smollm2
from support.tiny_llm import write_tiny_llm

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def arm_runner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    need(EMULATOR)
    if given := os.environ.get("SATCHEL_ARM_RUNNER"):
        return Path(given)
    need("cmake", ARM_COMPILER)
    folder = build(
        tmp_path_factory.mktemp("runner"),
        *("-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=aarch64"),
        *(f"-DCMAKE_CXX_COMPILER={ARM_COMPILER}", "-DSATCHEL_DEVICE=ON", "-DSATCHEL_STATIC=ON"),
        targets=("satchel-run",),
    )
    return folder / "satchel-run"


def run(runner: Path, *words: object, isa: str = "") -> dict[str, Any]:
    command = [EMULATOR, "-cpu", "max", str(runner), *map(str, words), "--json"]
    environment = {**os.environ, "SATCHEL_ISA": isa}
    done = subprocess.run(command, capture_output=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr.decode()
    document: dict[str, Any] = json.loads(done.stdout)
    return document


@pytest.mark.parametrize("isa", ["portable", "neon", "dotprod", "i8mm"])
def test_tokens_are_those_of_this_machine(arm_runner: Path, isa: str, tmp_path: Path) -> None:
    checkpoint = write_tiny_llm(tmp_path / "tiny")
    path = satchel.export(checkpoint, tmp_path / "tiny.satchel", recipe="fp32", context=64)
    wanted = satchel.LLM(path).generate("Hello 🦙", max_new_tokens=8).finish()
    found = run(arm_runner, "run", path, "Hello 🦙", "--max-new-tokens", 8, isa=isa)
    assert found["kernels"] == isa
    assert found["tokens"] == wanted.tokens and found["text"] == wanted.text


def test_it_is_small(arm_runner: Path) -> None:
    assert arm_runner.stat().st_size < 3_000_000


def test_a_real_chat(arm_runner: Path, tmp_path: Path) -> None:
    path = satchel.export(find_smollm2(), tmp_path / "smollm2.satchel", context=256)
    question = "What is the capital of France?"
    found = run(arm_runner, "chat", path, "--prompt", question, "--max-new-tokens", 12)
    assert "Paris" in found["text"]
