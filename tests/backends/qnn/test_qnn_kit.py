"""The kit for people with their own runner, and its script with a stand-in for adb."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from satchel.backends.qnn.chips import find_chip
from satchel.backends.qnn.kit import _write_vendor_settings, vendor_libraries, write_kit
from satchel.backends.qnn.payload import read_manifest
from satchel.backends.qnn.settings import Settings
from satchel.errors import OutputExistsError
from satchel.runtime.program import Instance, Program

ADB = """#!/bin/sh
if [ "$1 $2" = "shell getprop" ]; then echo "$FAKE_SOC"; exit; fi
echo "$@" >>"$FAKE_LOG"
"""


@pytest.fixture
def kit(npu_program: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "kit"
    names = write_kit(Program(npu_program), folder)
    assert {"manifest.json", "tokenizer.json", "libraries.txt", "push.sh", "README.txt"} < set(
        names
    )
    assert [n for n in names if n.endswith(".onnx")] == [
        "shard0.kv_forward.onnx",
        "shard0.prefill_forward.onnx",
    ]
    assert not [n for n in names if n.endswith(".so")], "vendor libraries are never copied"
    return folder


def _push(
    kit: Path, libraries: Path, soc: str, *arguments: str, runner: str = ""
) -> tuple[int, str, str]:
    tools = kit.parent / "tools"
    tools.mkdir(exist_ok=True)
    (tools / "adb").write_text(ADB)
    (tools / "adb").chmod(0o755)
    log = kit.parent / "log"
    log.touch()
    environment = {
        "PATH": f"{tools}:{os.environ['PATH']}",
        "QNN_LIBRARIES": str(libraries),
        "FAKE_SOC": soc,
        "FAKE_LOG": str(log),
        "RUNNER": runner,
    }
    done = subprocess.run(
        [kit / "push.sh", *arguments], env=environment, capture_output=True, text=True, check=False
    )
    return done.returncode, log.read_text(), done.stderr


def test_settings_for_qualcomms_runners(npu_program: Path, tmp_path: Path) -> None:
    """The keys that Qualcomm documents for the backend extensions of its runners."""
    program = Program(npu_program)
    write_kit(program, tmp_path / "kit")
    extensions = json.loads((tmp_path / "kit" / "backend_extensions.json").read_text())
    named = extensions["backend_extensions"]
    assert named["shared_library_path"] == "libQnnHtpNetRunExtensions.so"
    settings = json.loads((tmp_path / "kit" / named["config_file_path"]).read_text())
    (device,), (graphs,) = settings["devices"], settings["graphs"]
    assert (device["soc_model"], device["dsp_arch"]) == (69, "v79")
    assert device["pd_session"] == "unsigned" and device["cores"][0]["perf_profile"] == "burst"
    methods = read_manifest(program).methods.values()
    assert graphs["graph_names"] == [shard.graph for m in methods for shard in m.shards]
    assert "hvx_threads" not in graphs and "vtcm_mb" not in graphs
    assert settings["context"]["weight_sharing_enabled"] is True
    limited = replace(read_manifest(program), settings=Settings(vtcm_mb=4, hvx_threads=2))
    _write_vendor_settings(limited, find_chip("qnn:SM8750"), tmp_path)
    (graphs,) = json.loads((tmp_path / named["config_file_path"]).read_text())["graphs"]
    assert (graphs["vtcm_mb"], graphs["hvx_threads"]) == (4, 2)


def test_the_script(kit: Path) -> None:
    libraries = kit.parent / "libraries"
    libraries.mkdir()
    code, pushed, said = _push(kit, libraries, "SM8750")
    assert code == 1 and "lacks libQnnHtp.so" in said and not pushed
    for name in vendor_libraries(find_chip("qnn:SM8750")):
        (libraries / name).touch()
    code, pushed, said = _push(kit, libraries, "SM8550")
    assert code == 1 and "export it for qnn:SM8550" in said and not pushed
    code, pushed, said = _push(kit, libraries, "SM8750", "bench", "--json")
    assert code == 0, said
    assert "satchel-run" in pushed and "model.satchel" in pushed and ".bin" not in pushed
    assert "sh run.sh bench --json" in pushed
    own = str(kit / "README.txt")
    code, pushed, said = _push(kit, libraries, "SM8750", "--tokens", "5", runner=own)
    assert code == 0, said
    for name in ("libQnnHtpV79Skel.so", "shard0.prefill_forward_qnn.bin", "manifest.json"):
        assert name in pushed
    assert "./runner --tokens 5" in pushed and "ADSP_LIBRARY_PATH" in pushed


def test_tables_are_what_the_cpu_gives(kit: Path, npu_program: Path) -> None:
    """Of every token and every position, as the manifest's codes."""
    program = Program(npu_program)
    method = read_manifest(program).methods["kv_forward"]
    before = Instance(program).method(str(method.before))
    context, vocabulary = program.metadata["context"], program.metadata["vocab_size"]
    for name in before.outputs:
        tensor = method.tensors[name]
        table = np.fromfile(kit / f"{name}.table", tensor.encoding.dtype)
        of_tokens = name.startswith("embedded.")
        table = table.reshape(vocabulary if of_tokens else context, *tensor.shape[1:])
        for token, position in ((0, 0), (17, 3), (vocabulary - 1, context - 1)):
            made = dict(zip(before.outputs, before.run([token], [position]), strict=True))
            row = table[token if of_tokens else position]
            np.testing.assert_array_equal(row, tensor.encoding.quantize(made[name])[0])


def test_a_folder_with_something_in_it(npu_program: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputExistsError, match="is not empty"):
        write_kit(Program(npu_program), tmp_path)
