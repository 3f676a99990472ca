"""How the NPU is to be run: modes, fast memory, priority; and the cycles of its ops."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import satchel
from satchel.backends.qnn.manifest import Manifest
from satchel.backends.qnn.payload import MANIFEST, read_manifest
from satchel.backends.qnn.profile import ProfileFiles
from satchel.backends.qnn.settings import Settings
from satchel.cli.main import main
from satchel.errors import ConfigError, ProgramFormatError
from satchel.runtime.program import Program

ROW = "0,NODE,{},CYCLES,BACKEND,SUB-EVENT,{}:OpId_7 (cycles)\n"


def test_settings_are_checked() -> None:
    assert satchel.find_target("qnn:SM8750").settings == Settings(
        "burst", None, "normal", "unsigned"
    )
    chosen = satchel.find_target("qnn:SM8750", performance="balanced", vtcm_mb=4, priority="high")
    assert chosen.settings.provider() == {
        "htp_performance_mode": "balanced",
        "qnn_context_priority": "high",
        "vtcm_mb": "4",
    }
    assert list(chosen.choices()) == ["vtcm4", "balanced"]
    signed = satchel.find_target("qnn:SM8750", process_domain="signed")
    assert list(signed.choices()) == ["signed"]
    threads = satchel.find_target("qnn:SM8750", hvx_threads=4)
    assert list(threads.choices()) == ["hvx4"] and "4" not in threads.settings.provider().values()
    wrongs = [{"performance": "fast"}, {"vtcm_mb": 0}, {"vtcm_mb": 65}, {"priority": "top"}]
    wrongs += [{"hvx_threads": 0}, {"hvx_threads": 17}]
    for wrong in [*wrongs, {"process_domain": "both"}]:
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            satchel.find_target("qnn:SM8750", **wrong)


def test_settings_travel_in_the_manifest(npu_program: Path) -> None:
    program = Program(npu_program)
    manifest = read_manifest(program)
    assert manifest.settings == Settings()
    chosen = replace(manifest, settings=Settings("power_saver", 2, "low"))
    assert Manifest.from_json(chosen.to_json().encode()).settings == chosen.settings
    document = json.loads(program.payload(MANIFEST))
    del document["settings"]  # of a file that was made before there were any
    assert Manifest.from_json(json.dumps(document).encode()).settings == Settings()
    for wrong in ({"performance": "../x"}, {"vtcm_mb": "4"}, [1]):
        document["settings"] = wrong
        with pytest.raises(ProgramFormatError, match="manifest is not readable"):
            Manifest.from_json(json.dumps(document).encode())


def test_chosen_settings_compile_and_run(tiny_checkpoint: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.satchel"
    flags = ["--target", "qnn:SM8750", "--mode", "kv", "--context", "24", "--vtcm-mb", "4"]
    flags += ["--performance", "balanced", "--priority", "high", "-o", str(path)]
    assert main(["export", str(tiny_checkpoint), *flags]) == 0
    found = Program(path).metadata["payloads"]["qnn:SM8750"]["settings"]
    chosen = {"performance": "balanced", "vtcm_mb": 4, "priority": "high"}
    assert found == {**chosen, "process_domain": "unsigned", "hvx_threads": None}
    assert main(["run", str(path), "hi", "--max-new-tokens", "1"]) == 0


def test_bench_counts_cycles_by_op(npu_program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lengths = ["--prompt-tokens", "12", "--new-tokens", "3", "--runs", "1", "--warmup", "0"]
    assert main(["bench", str(npu_program), "--profile", *lengths, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["emulated"]
    for phase, calls in (("prefill", 1), ("decode", 2)):
        profile = document["profile"][phase]
        ops = {row["op"]: row for row in profile["ops"]}
        assert ops["linear"]["cycles"] > 0 and ops["rms_norm"]["cycles"] > 0
        assert ops["softmax"]["calls"] >= 2 * calls  # two layers
        assert sum(row["share"] for row in profile["ops"]) == pytest.approx(1)
        assert profile["cycles"] >= sum(row["cycles"] for row in profile["ops"])


def test_each_event_is_read_once(tmp_path: Path) -> None:
    files = ProfileFiles(tmp_path)
    path = files.file(0, "kv_forward")
    path.write_text("Msg Timestamp,Message,Time,Unit\n" + ROW.format(5, "make.linear_1.exact_2"))
    assert files.take() == {"linear": (1, 5)}
    with path.open("a") as file:
        file.write(ROW.format(3, "make.linear_12.exact") + ROW.format(2, "x_convert"))
        file.write("0,BACKEND,9,CYCLES,BACKEND,ROOT,Accelerator (execute) time (cycles)\n")
    assert files.take() == {"linear": (1, 3), "moves and conversions": (1, 2)}
    assert files.take() == {}
