"""One file for several targets: portable methods once, a payload for each, and a choice at run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import satchel
from satchel.cli.main import main
from satchel.errors import ConfigError, ExecutionError
from satchel.exporter import ExportOptions, prepare_export
from satchel.llm.session import Session
from satchel.runtime.program import Program

NAMES = ("cpu", "qnn:SM8750", "qnn:v79")


@pytest.fixture(scope="module")
def several(tiny_checkpoint: Path) -> Path:
    pytest.importorskip("onnxruntime_qnn", reason="pip install 'satchel[qnn]'")
    output = tiny_checkpoint.parent / "several.satchel"
    return satchel.export(
        tiny_checkpoint, output, target=",".join(NAMES), context=32, prefill_ar_len=8
    )


def test_weights_and_methods_are_there_once(several: Path, tiny_checkpoint: Path) -> None:
    program = Program(several, verify=True)
    assert program.targets == NAMES and program.target == "cpu"
    assert list(program.metadata["payloads"]) == list(NAMES[1:])
    weights = [w["name"] for w in program.weights]
    payloads = [name for name in weights if name.startswith("qnn:")]
    alone = satchel.export(
        tiny_checkpoint,
        several.with_name("alone.satchel"),
        target="cpu",
        recipe="16a4w",
        kv_bits=8,
        context=32,
        prefill_ar_len=8,
    )
    assert {w["name"] for w in Program(alone).weights} <= set(weights) - set(payloads)
    assert len(set(weights)) == len(weights) and len(payloads) >= 4


def test_each_target_runs_what_it_was_compiled_for(several: Path) -> None:
    logits = {}
    for name in NAMES:
        program = Program(several, target=name)
        session = Session(program)
        assert session.instance.kernels.startswith("qnn") == (name != "cpu")
        assert bool(program.payload_names()) == (name != "cpu")
        logits[name] = session.feed([72, 101, 108, 108, 111])
    np.testing.assert_array_equal(logits["qnn:SM8750"], logits["qnn:v79"])
    cosine = np.corrcoef(logits["cpu"], logits["qnn:SM8750"])[0, 1]
    assert cosine > 0.98 and not np.array_equal(logits["cpu"], logits["qnn:SM8750"])


def test_a_target_is_chosen_on_the_command_line(
    several: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = ["run", str(several), "--raw", "--prompt", "Hello", "--max-new-tokens", "4", "--json"]
    kernels = []
    for name in NAMES[:2]:
        assert main([*run, "--target", name]) == 0
        kernels.append(json.loads(capsys.readouterr().out)["kernels"])
    assert kernels[1] == "qnn emulator" and kernels[0] != kernels[1]
    assert main(["inspect", str(several)]) == 0
    assert "cpu, qnn:SM8750, qnn:v79" in capsys.readouterr().out
    assert main([*run, "--target", "qnn:SM8450"]) == 1
    assert "is not for qnn:SM8450. It is for cpu, qnn:SM8750" in capsys.readouterr().err


def test_the_portable_methods_of_any_file_run_on_the_cpu(npu_program: Path) -> None:
    session = Session(Program(npu_program, target="cpu"))
    assert not session.instance.kernels.startswith("qnn")
    assert np.isfinite(session.feed([72, 101])).all()
    with pytest.raises(ExecutionError, match="is not for qnn:v73"):
        Program(npu_program, target="qnn:v73")


def test_names_are_checked(tiny_checkpoint: Path) -> None:
    with pytest.raises(ConfigError, match="cpu is chosen twice"):
        prepare_export(tiny_checkpoint, ExportOptions(target=["cpu", "cpu"]))
    with pytest.raises(ConfigError, match="there is no target"):
        prepare_export(tiny_checkpoint, ExportOptions(target=()))
